#include "rendezvous/http/exchange.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/base/errors.hpp"
#include "rendezvous/base/unique_fd.hpp"

namespace mgpu::rendezvous::http {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

std::string describe_error(const error_code& error) {
  return error.category() == boost::system::system_category() ? error_text(error.value())
                                                              : error.message();
}

}  // namespace

Exchange::Exchange(asio::io_context& io, Resolver& resolver, const tls::Context* tls,
                   Endpoint endpoint, Listener listener, std::size_t max_body)
    : resolver_(resolver),
      tls_(tls),
      endpoint_(std::move(endpoint)),
      listener_(std::move(listener)),
      socket_(io),
      timer_(io),
      parser_(max_body) {}

void Exchange::start(std::string request, std::chrono::milliseconds limit) {
  request_ = std::move(request);
  timeout_problem_ = "its name did not resolve";
  timer_.expires_after(limit);
  timer_.async_wait([self = shared_from_this(), limit](const error_code& error) {
    const auto seconds = std::chrono::duration<double>(limit).count();
    if (!error && !self->over_)
      self->fail(Failure::time_limit,
                 fmt::format("{} within {:.3g} s", self->timeout_problem_, seconds));
  });
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->over_) return;
    // The resolver may keep this callback longer than this object lives.
    self->resolver_.resolve(
        self->endpoint_.host, [weak = std::weak_ptr(self)](const auto& addresses, auto& problem) {
          const auto alive = weak.lock();
          if (!alive || alive->over_) return;
          if (!problem.empty())
            return alive->fail(Failure::no_address, "cannot resolve its name: " + problem);
          alive->connect(addresses, "");
        });
  });
}

void Exchange::cancel() {
  over_ = true;
  listener_ = {};
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

// Tries the addresses in order.
void Exchange::connect(Resolver::Addresses addresses, std::string last_problem) {
  if (addresses.empty()) {
    resolver_.forget(endpoint_.host);
    return fail(Failure::no_connection, std::move(last_problem));
  }
  const auto address = addresses.front();
  addresses.erase(addresses.begin());
  timeout_problem_ = "no connection";
  error_code error;
  socket_.close(error);
  const auto protocol = address.is_v4() ? asio::ip::tcp::v4() : asio::ip::tcp::v6();
  // Not with Asio's open(): workers would inherit the socket.
  UniqueFd fd(::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return connect(std::move(addresses), error_text(errno));
  socket_.assign(protocol, fd.release(), error);
  if (error) return connect(std::move(addresses), describe_error(error));
  socket_.async_connect(
      {address, endpoint_.port},
      [self = shared_from_this(), rest = std::move(addresses)](const error_code& failed) mutable {
        if (self->over_) return;
        if (failed) return self->connect(std::move(rest), describe_error(failed));
        self->connected();
      });
}

void Exchange::connected() {
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  try {
    if (endpoint_.tls) {
      timeout_problem_ = "connected, but no answer to the TLS handshake";
      session_.emplace(*tls_, endpoint_.host);
      session_->send(std::exchange(request_, {}));
      send(session_->take_outgoing());
    } else {
      timeout_problem_ = "connected, but no answer";
      send(std::move(request_));
    }
  } catch (const tls::Error& error) {
    return fail(Failure::tls, error.what());
  } catch (const std::exception& error) {
    return fail(Failure::no_response, error.what());
  }
  read();
}

void Exchange::send(std::string bytes) {
  if (bytes.empty()) return;
  const bool busy = !sending_.empty();
  if (busy) {  // TLS produced output while a write is pending: send it afterwards
    queued_.append(bytes);
    return;
  }
  sending_ = std::move(bytes);
  asio::async_write(socket_, asio::buffer(sending_),
                    [self = shared_from_this()](const error_code& error, std::size_t) {
                      if (self->over_) return;
                      self->sending_.clear();
                      // Errors are left to the read: the peer may have sent a reason.
                      if (!error && self->session_) self->send(std::exchange(self->queued_, {}));
                    });
}

void Exchange::read() {
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](const error_code& error, std::size_t size) {
                            if (self->over_) return;
                            try {
                              if (error == asio::error::eof) return self->peer_closed();
                              if (error)
                                return self->fail(Failure::no_response, describe_error(error));
                              self->received({self->buffer_.data(), size});
                            } catch (const tls::Error& problem) {
                              return self->fail(Failure::tls, problem.what());
                            } catch (const std::exception& problem) {
                              return self->fail(Failure::no_response, problem.what());
                            }
                            if (!self->over_) self->read();
                          });
}

void Exchange::received(std::string_view bytes) {
  const bool first = !std::exchange(received_any_, true);
  if (!session_) {
    constexpr char kTlsAlert = 0x15;
    if (first && bytes.front() == kTlsAlert)
      return fail(Failure::no_response, "it requires TLS; did you mean https://?");
    parser_.feed(bytes);
    return deliver();
  }
  const auto plain = session_->receive(bytes);
  if (session_->established()) timeout_problem_ = "connected, but no answer";
  send(session_->take_outgoing());
  parser_.feed(plain);
  if (session_->closed() && !parser_.done()) parser_.end();
  deliver();
}

void Exchange::peer_closed() {
  if (session_ && !session_->established())
    return fail(Failure::no_response,
                "it closed the connection during the TLS handshake; did you mean http://?");
  if (!session_ && !received_any_)
    return fail(Failure::no_response,
                "it closed the connection without an answer; did you mean https://?");
  parser_.end();
  deliver();
}

void Exchange::deliver() {
  if (listener_.on_piece && parser_.begun() && parser_.status() == 200) {
    const auto piece = parser_.take_body();
    if (!piece.empty()) {
      timer_.cancel();
      const auto on_piece = listener_.on_piece;  // a copy: it may cancel this object
      on_piece(piece);
    }
  }
  if (!over_ && parser_.done())
    finish({.status = parser_.status(),
            .body = parser_.take_body(),
            .retry_after = parser_.retry_after()});
}

void Exchange::fail(Failure failure, std::string problem) {
  finish({.problem = std::move(problem), .failure = failure});
}

void Exchange::finish(Result result) {
  const auto on_end = std::move(listener_.on_end);
  cancel();
  on_end(std::move(result));
}

}  // namespace mgpu::rendezvous::http
