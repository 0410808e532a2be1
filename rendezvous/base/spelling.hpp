#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace mgpu::rendezvous {

// A piece of a person's input as an error line may show it: on one line, without control
// characters, cut after `limit` bytes (never inside a UTF-8 character), '' when empty.
std::string shown(std::string_view text, std::size_t limit = 72);

// The known word that `word` was most likely meant to be; empty when none is near enough to
// be more help than noise. Of words equally near the first wins.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace mgpu::rendezvous
