#include <string>

#include "rendezvous/tls/context.hpp"
#include "rendezvous/tls/session.hpp"
#include "tests/support/catch.hpp"

namespace tls = mgpu::rendezvous::tls;
using Catch::Matchers::Contains;

TEST_CASE("a CA file that cannot be read is named with its setting", "[tls]") {
  CHECK_THROWS_WITH(
      tls::Context({.ca = "/nope", .ca_setting = "SSL_CERT_FILE"}),
      "SSL_CERT_FILE=/nope: cannot read the CA certificate: No such file or directory");
  CHECK_THROWS_AS(tls::Context({.ca = "/nope"}), tls::FileError);
}

TEST_CASE("a session sends nothing but the handshake before it is established", "[tls]") {
  const tls::Context context(tls::Files{});
  tls::Session session(context, "localhost");
  session.send("a secret");
  const auto sent = session.take_outgoing();
  CHECK(sent.starts_with("\x16\x03"));  // a handshake record
  CHECK_THAT(sent, !Contains("a secret"));
  CHECK_FALSE(session.established());
}

TEST_CASE("a peer without TLS is recognised by its answer", "[tls]") {
  const tls::Context context(tls::Files{});
  tls::Session session(context, "127.0.0.1");
  CHECK_THROWS_AS(session.receive("HTTP/1.1 400 Bad Request\r\n\r\n"), tls::Error);
  tls::Session other(context, "127.0.0.1");
  CHECK_THROWS_WITH(other.receive("HTTP/1.1 400 Bad Request\r\n\r\n"),
                    "it does not speak TLS; did you mean http://?");
}
