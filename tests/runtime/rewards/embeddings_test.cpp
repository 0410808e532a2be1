#include "runtime/rewards/embeddings.hpp"

#include <cstring>
#include <fstream>

#include "tests/runtime/rewards/rewards_support.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace mgpu;
using namespace mgpu::rewards;
using Catch::Matchers::Contains;

namespace {

template <class Float>
std::string numpy_file(const std::vector<Float>& values, const std::string& dictionary) {
  auto header = dictionary + "\n";
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size());
  file += '\0';
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Float));
  return file;
}

std::string header_of(const std::string& type, const std::string& shape,
                      const std::string& fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': (" + shape + "), }";
}

const std::vector<float> kThree = {1, 0, 3, 4, -2, 0};

}  // namespace

TEST_CASE("embeddings are compared by the cosine of their angle", "[embeddings]") {
  const auto items = Embeddings::parse(numpy_file(kThree, header_of("<f4", "3, 2")), "e.npy");
  CHECK(items.rows() == 3);
  CHECK(items.cosine(0, 1) == Approx(.6));
  CHECK(items.cosine(1, 1) == Approx(1));
  CHECK(items.cosine(0, 2) == Approx(-1));
  const std::vector<double> zero = {1, 0, 0, 0};
  CHECK(Embeddings::parse(numpy_file(zero, header_of("<f8", "2, 2")), "e.npy").cosine(0, 1) == 0);
}

TEST_CASE("a bad file of embeddings is refused", "[embeddings]") {
  struct Case {
    std::string header;
    const char* message;
  };
  const auto [header, message] = GENERATE(values<Case>({
      {header_of("<f2", "3, 2"), "e.npy: need numbers of type <f4 or <f8, not '<f2'"},
      {header_of("<f4", "6,"), "e.npy: need a matrix with one row per item"},
      {header_of("<f4", "3, 2", "True"), "e.npy: need a matrix with one row per item"},
      {header_of("<f4", "4, 2"), "e.npy: 4 x 2 numbers need another size of the file"},
      {header_of("<f4", "99999999999999999999, 2"), "e.npy: need a matrix"},
      {"{}", "e.npy: need numbers of type <f4 or <f8, not ''"},
  }));
  CHECK_THAT(
      tests::message_of([&, &h = header] { Embeddings::parse(numpy_file(kThree, h), "e.npy"); }),
      Contains(message));
  CHECK_THAT(tests::message_of([] { Embeddings::parse("\x80\x04 pickle", "e.pkl"); }),
             Contains("e.pkl: not a NumPy file; a pickle can run code and is not read"));
}

TEST_CASE("embeddings are read from a file that is one, and of the size that it states",
          "[embeddings]") {
  const tests::TempDir dir;
  CHECK_THAT(tests::message_of([&] { Embeddings::read(dir.path("")); }),
             Contains("it is not a file"));
  CHECK_THAT(tests::message_of([&] { Embeddings::read("/dev/zero"); }),
             Contains("cannot read /dev/zero: it is not a file"));
  CHECK_THAT(tests::message_of([&] { Embeddings::read(dir.path("none.npy")); }),
             Contains("cannot read ") && Contains("No such file"));
  const auto path = dir.path("e.npy");
  const std::vector<double> three(kThree.begin(), kThree.end());
  const auto whole = numpy_file(three, header_of("<f8", "3, 2"));
  std::ofstream(path, std::ios::binary) << whole;
  CHECK(Embeddings::read(path).cosine(0, 1) == Approx(.6));
  for (const auto size : {whole.size() - 1, whole.size() - 48, std::size_t{20}, std::size_t{7}}) {
    CAPTURE(size);
    CHECK_THROWS_AS(Embeddings::parse(whole.substr(0, size), "e.npy"), std::runtime_error);
  }
}

TEST_CASE("semantic is the similarity of the completion's item to the one to find", "[rewards]") {
  const tests::TempDir dir;
  const auto items = dir.path("items.txt"), vectors = dir.path("e.npy");
  std::ofstream(items) << "<a_0>\tt\t0\n<a_1>\tt\t1\n<a_2>\tt\t2\n";
  std::ofstream(vectors, std::ios::binary) << numpy_file(kThree, header_of("<f4", "3, 2"));
  const nlohmann::json settings{{"info_file", items}, {"ada_path", vectors}};
  const tests::Batch batch({"<a_1>\n", "<a_0>", "<a_2>", "no item"}, {{"completion", "<a_0>\n"}});
  const auto scores = batch.scored_by("semantic", settings);
  CHECK(scores[0].value() == Approx(.6));
  CHECK(scores[1].value() == Approx(1));
  CHECK(scores[2].value() == Approx(-1));
  CHECK(scores[3].value() == 0);

  SECTION("a row whose item is not in the list is an error") {
    const tests::Batch other({"<a_1>"}, {{"completion", "<a_7>\n"}});
    CHECK_THAT(tests::message_of([&] { other.scored_by("semantic", settings); }),
               Contains("reward semantic: the item <a_7> of a row is not in "));
  }
  SECTION("the files must have the same number of items") {
    std::ofstream(items, std::ios::app) << "<a_3>\tt\t3\n";
    CHECK_THAT(tests::message_of([&] { batch.scored_by("semantic", settings); }),
               Contains("e.npy has 3 rows for the 4 items of "));
  }
  SECTION("both files are required") {
    CHECK(tests::message_of([&] { batch.scored_by("semantic"); }) ==
          "reward semantic requires info_file");
  }
}
