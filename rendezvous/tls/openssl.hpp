#pragma once

#include <cstddef>
#include <string>

// The functions of OpenSSL 3 that we call through its documented binary interface. The library is
// loaded when TLS is first used and is never linked, so that mgpu-run stays one file that also
// starts on machines without it.
namespace mgpu::rendezvous::tls::openssl {

// OpenSSL's own type names; only pointers to them are used.
using SSL = void;
using SSL_CTX = void;
using SSL_METHOD = void;
using BIO = void;
using BIO_METHOD = void;
using X509_VERIFY_PARAM = void;

#define MGPU_OPENSSL_FUNCTIONS(F)                                                   \
  F(TLS_client_method, const SSL_METHOD*())                                         \
  F(SSL_CTX_new, SSL_CTX*(const SSL_METHOD*))                                       \
  F(SSL_CTX_free, void(SSL_CTX*))                                                   \
  F(SSL_CTX_ctrl, long(SSL_CTX*, int, long, void*))                                 \
  F(SSL_CTX_set_verify, void(SSL_CTX*, int, void*))                                 \
  F(SSL_CTX_set_default_verify_paths, int(SSL_CTX*))                                \
  F(SSL_CTX_load_verify_locations, int(SSL_CTX*, const char*, const char*))         \
  F(SSL_CTX_use_certificate_chain_file, int(SSL_CTX*, const char*))                 \
  F(SSL_CTX_use_PrivateKey_file, int(SSL_CTX*, const char*, int))                   \
  F(SSL_CTX_set_default_passwd_cb, void(SSL_CTX*, int (*)(char*, int, int, void*))) \
  F(SSL_new, SSL*(SSL_CTX*))                                                        \
  F(SSL_free, void(SSL*))                                                           \
  F(SSL_ctrl, long(SSL*, int, long, void*))                                         \
  F(SSL_set_bio, void(SSL*, BIO*, BIO*))                                            \
  F(SSL_set_connect_state, void(SSL*))                                              \
  F(SSL_get0_param, X509_VERIFY_PARAM*(SSL*))                                       \
  F(X509_VERIFY_PARAM_set_hostflags, void(X509_VERIFY_PARAM*, unsigned))            \
  F(X509_VERIFY_PARAM_set1_host, int(X509_VERIFY_PARAM*, const char*, std::size_t)) \
  F(X509_VERIFY_PARAM_set1_ip_asc, int(X509_VERIFY_PARAM*, const char*))            \
  F(SSL_do_handshake, int(SSL*))                                                    \
  F(SSL_read, int(SSL*, void*, int))                                                \
  F(SSL_write, int(SSL*, const void*, int))                                         \
  F(SSL_get_error, int(const SSL*, int))                                            \
  F(SSL_get_verify_result, long(const SSL*))                                        \
  F(X509_verify_cert_error_string, const char*(long))                               \
  F(BIO_s_mem, const BIO_METHOD*())                                                 \
  F(BIO_new, BIO*(const BIO_METHOD*))                                               \
  F(BIO_free, int(BIO*))                                                            \
  F(BIO_read, int(BIO*, void*, int))                                                \
  F(BIO_write, int(BIO*, const void*, int))                                         \
  F(ERR_get_error, unsigned long())                                                 \
  F(ERR_clear_error, void())                                                        \
  F(ERR_reason_error_string, const char*(unsigned long))

template <class Function>
using Pointer = Function*;

struct Library {
#define MGPU_OPENSSL_POINTER(name, ...) Pointer<__VA_ARGS__> name = nullptr;
  MGPU_OPENSSL_FUNCTIONS(MGPU_OPENSSL_POINTER)
#undef MGPU_OPENSSL_POINTER
};

// Loads the library at the first call and never unloads it. Throws std::runtime_error with a
// one-line message that names the package to install if the library is missing.
const Library& library();

// OpenSSL's text for the first error since this thread's errors were cleared; clears them.
std::string first_error();

}  // namespace mgpu::rendezvous::tls::openssl
