#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "launcher/options/options.hpp"

namespace mgpu::launcher {

// One function for each kind of option value. Each returns the value or throws a UsageError that
// only states what is valid ("need ..."); the caller prepends the flag, variable or line that the
// text came from.

int parse_whole(const std::string& text, int least, int most);
bool parse_bool(const std::string& text);  // true, no, ...; or any number, as in torchrun
Milliseconds parse_seconds(const std::string& text);  // decimal, 0 to a year
Milliseconds parse_seconds_from(const std::string& text, double least);
std::uint64_t parse_size(const std::string& text);  // bytes: 60G, 512MiB; at least 1 MiB
std::string parse_text(const std::string& text);    // not empty
std::string parse_choice(const std::string& text, const std::vector<std::string>& choices);

std::pair<int, bool> parse_restarts(const std::string& text);  // 3 or 3/progress
// nan=give_up,import_error=restart
std::map<FailureKind, FailurePolicy> parse_on_failure(const std::string& text);
// off or output,cpu
std::vector<std::string> parse_hang_activity(const std::string& text);
RankCount parse_rank_count(const std::string& text);            // 4, gpu, cpu, auto
std::pair<int, int> parse_node_range(const std::string& text);  // 2 or 1:4
StreamMap parse_stream_map(const std::string& text);            // 3 or 0:1,11:3
std::vector<int> parse_rank_list(const std::string& text);      // 0,1,2
std::vector<int> parse_signals(const std::string& text);        // SIGTERM,INT
std::vector<std::string> parse_gpus(const std::string& text);   // 0,1 or UUIDs
NumaBinding parse_numa_binding(const std::string& text);
std::string parse_endpoint(const std::string& text);  // host, host:port, [v6]:port
std::map<std::string, std::string> parse_rdzv_conf(const std::string& text);  // k=v,k=v
std::vector<std::string> parse_needles(const std::string& text);  // a,b where ,, is a comma
std::pair<std::string, std::string> parse_assignment(const std::string& text);  // KEY=VALUE

}  // namespace mgpu::launcher
