// tokenize FOLDER|tokenizer.json           a JSON line {"text", "special"} in, {"ids", "decoded",
//                                          "skipped"} or {"error"} out; {"pair": [TEXT, TEXT],
//                                          "longest"} in, {"ids", "types", "cut"} out
// tokenize FOLDER|tokenizer.json time TEXT CPU time of loading and encoding, as JSON
// tokenize FOLDER add OUT TOKEN...         adds tokens, saves to OUT

#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "runtime/text/tokenizer.hpp"

namespace {

using mgpu::text::Tokenizer;
using nlohmann::json;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Tokenizer load(const std::string& path) {
  return std::filesystem::is_directory(path) ? Tokenizer::load(path)
                                             : Tokenizer::parse(content_of(path));
}

json pair_answer(const Tokenizer& tokenizer, const json& request) {
  const auto texts = request.at("pair").get<std::vector<std::string>>();
  const auto pair =
      tokenizer.encode_pair(texts.at(0), texts.at(1), request.at("longest").get<std::size_t>());
  return {{"ids", pair.both.ids}, {"types", pair.both.types}, {"cut", pair.cut}};
}

json answer(const Tokenizer& tokenizer, const json& request) {
  try {
    if (request.contains("pair")) return pair_answer(tokenizer, request);
    const auto ids = request.contains("ids")
                         ? request.at("ids").get<std::vector<std::int32_t>>()
                         : tokenizer.encode(request.at("text").get<std::string>(),
                                            request.at("special").get<bool>());
    return {{"ids", ids},
            {"decoded", tokenizer.decode(ids, false)},
            {"skipped", tokenizer.decode(ids, true)}};
  } catch (const std::runtime_error& error) {
    return {{"error", error.what()}};
  }
}

double cpu_seconds_since(std::clock_t start) {
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

json times(const std::string& path, const std::string& text_path) {
  std::clock_t start = std::clock();
  const Tokenizer tokenizer = load(path);
  json result{{"load_seconds", cpu_seconds_since(start)}};
  const std::string text = content_of(text_path);
  for (const char* const run : {"cold_seconds", "warm_seconds"}) {
    start = std::clock();
    std::size_t tokens = 0;
    for (std::size_t begin = 0; begin < text.size();) {
      std::size_t end = text.find("\n\n", begin);
      end = end == std::string::npos ? text.size() : end + 2;
      tokens += tokenizer.encode(std::string_view(text).substr(begin, end - begin), false).size();
      begin = end;
    }
    result[run] = cpu_seconds_since(start);
    result["tokens"] = tokens;
  }
  result["bytes"] = text.size();
  return result;
}

int run(const std::vector<std::string>& args) {
  if (args.size() == 3 && args[1] == "time") {
    std::cout << times(args[0], args[2]) << "\n";
    return 0;
  }
  if (args.empty() || (args.size() > 1 && args[1] != "add")) {
    std::cerr << "usage: tokenize FOLDER|tokenizer.json [time TEXT | add OUT TOKEN...]\n";
    return 2;
  }
  Tokenizer tokenizer = load(args[0]);
  if (args.size() > 2) {
    tokenizer.add_tokens({args.begin() + 3, args.end()}, false);
    tokenizer.save(args[2]);
    return 0;
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::cout << answer(tokenizer, json::parse(line)) << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char* argv[]) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "tokenize: " << error.what() << "\n";
    return 1;
  }
}
