"""Certificates of authorities that a test makes, with the openssl command."""

import pathlib
import shutil
import ssl
import subprocess
import tempfile

MISSING = None if shutil.which("openssl") else "openssl is not installed"
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificates:
    """A folder with the authorities `ca` and `other`, and certificates of `ca`."""

    def __init__(self):
        self.temp = tempfile.TemporaryDirectory(prefix="mgpu-tls-")
        self.dir = pathlib.Path(self.temp.name)
        self.authority("ca")
        self.authority("other")
        self.certificate("good", "IP:127.0.0.1,DNS:localhost")
        self.certificate("elsewhere", "IP:10.9.8.7,DNS:elsewhere.example")
        self.certificate("localhost", "IP:10.9.8.7")  # the name is its common name only
        self.certificate("client", "DNS:client.example")
        self.certificate("old", "IP:127.0.0.1", "-startdate", "20200101000000Z",
                         "-enddate", "20200201000000Z")

    def close(self):
        self.temp.cleanup()

    def path(self, name):
        return str(self.dir / name)

    def openssl(self, *words):
        return subprocess.run(["openssl", *words], cwd=self.dir, check=True, capture_output=True,
                              text=True).stdout

    def authority(self, name):
        self.openssl("req", "-x509", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.pem",
                     "-days", "2", "-subj", f"/CN=test authority {name}")

    def certificate(self, name, names, *dates):
        """A certificate of the authority ca. Only openssl's `ca` command can set its dates."""
        self.openssl("req", *KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                     "-subj", f"/CN={name}")
        (self.dir / "ca.cnf").write_text(
            "[ca]\ndefault_ca=d\n[d]\ndatabase=index.txt\nserial=serial\nnew_certs_dir=.\n"
            "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n"
            f"[e]\nsubjectAltName={names}\nextendedKeyUsage=serverAuth,clientAuth\n")
        (self.dir / "index.txt").touch()
        if not (self.dir / "serial").exists():
            (self.dir / "serial").write_text("01\n")
        self.openssl("ca", "-batch", "-config", "ca.cnf", "-extensions", "e", "-cert", "ca.pem",
                     "-keyfile", "ca.key", "-in", f"{name}.csr", "-out", f"{name}.pem", "-notext",
                     *(dates or ("-days", "2")))

    def folder_of_authorities(self):
        """A folder with the authority ca, as SSL_CERT_DIR names one."""
        folder = self.dir / "authorities"
        folder.mkdir()
        name = self.openssl("x509", "-hash", "-noout", "-in", "ca.pem").strip()
        shutil.copy(self.dir / "ca.pem", folder / f"{name}.0")
        return str(folder)

    def secure(self, server, name="good"):
        """Makes an http.server serve https with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path(f"{name}.pem"), self.path(f"{name}.key"))
        # The handshake is left to the thread of the connection.
        server.socket = context.wrap_socket(server.socket, server_side=True,
                                            do_handshake_on_connect=False)
