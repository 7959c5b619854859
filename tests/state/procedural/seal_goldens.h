// seal_goldens.h: reads tests/goldens/procedural/seal.golden (tools/make_procedural_goldens.py tells its
// format).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "state/procedural/reference_rows.h"
#include "state/procedural/summarise.h"

namespace kvtide::testing {

// One block of rows, and what the independent implementation makes of it.
struct SealGolden {
  std::string name;
  std::int64_t rows = 0, dim = 0, references = 0, exact = 0, summaries = 0;
  float scale = 0.0f;
  std::map<std::string, std::vector<float>> floats;           // i1 and f4
  std::map<std::string, std::vector<std::int64_t>> integers;  // i4

  BlockRows block() const {
    BlockRows out = padded_block(rows, dim);
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t i = 0; i < dim; ++i) {
        const auto to = static_cast<std::size_t>(row * out.padded_dim + i);
        const auto from = static_cast<std::size_t>(row * dim + i);
        out.keys[to] = floats.at("keys")[from] / 16.0f;
        out.values[to] = floats.at("values")[from] / 16.0f;
      }
    out.bias = floats.at("bias");
    return out;
  }
  ReferenceRows asked() const {
    ReferenceRows out;
    out.count = references;
    for (const float x : floats.at("queries")) out.queries.push_back(x / 16.0f);
    out.log_mass = floats.at("log_mass");
    return out;
  }
  SummaryRules rules(RowScore score = RowScore::mixed) const {
    return {exact, summaries, Summary::fit, score, scale, 0.75f};
  }
};

inline std::vector<SealGolden> read_seal_goldens() {
  std::ifstream file(KVTIDE_GOLDENS "/procedural/seal.golden", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::size_t end = bytes.find("\nend\n");
  EXPECT_NE(end, std::string::npos) << "no golden file";
  if (end == std::string::npos) return {};
  std::istringstream header(bytes.substr(0, end));
  std::size_t at = end + 5;
  std::vector<SealGolden> out;
  for (std::string line; std::getline(header, line);) {
    std::istringstream words(line);
    std::string word, name, kind;
    words >> word;
    if (word == "case") {
      SealGolden& golden = out.emplace_back();
      words >> golden.name;
      std::map<std::string, std::int64_t*> wanted = {{"rows", &golden.rows},
                                                     {"dim", &golden.dim},
                                                     {"references", &golden.references},
                                                     {"exact", &golden.exact},
                                                     {"summaries", &golden.summaries}};
      while (words >> word) {
        const std::size_t sign = word.find('=');
        const std::string key = word.substr(0, sign), value = word.substr(sign + 1);
        if (key == "scale")
          golden.scale = std::stof(value);
        else
          *wanted.at(key) = std::stoll(value);
      }
    } else if (word == "array") {
      std::size_t count = 0;
      words >> name >> kind >> count;
      for (std::size_t i = 0; i < count; ++i) {
        if (kind == "i1") {
          out.back().floats[name].push_back(static_cast<signed char>(bytes.at(at)));
        } else {
          float real = 0.0f;
          std::int32_t integer = 0;
          if (at + 4 > bytes.size()) {
            ADD_FAILURE() << "the golden file is too short";
            return {};
          }
          std::memcpy(kind == "f4" ? static_cast<void*>(&real) : &integer, bytes.data() + at, 4);
          if (kind == "f4")
            out.back().floats[name].push_back(real);
          else
            out.back().integers[name].push_back(integer);
        }
        at += kind == "i1" ? 1 : 4;
      }
      out.back().floats[name], out.back().integers[name];  // empty ones exist, too
    }
  }
  EXPECT_EQ(at, bytes.size()) << "the golden file's length is wrong";
  return out;
}

}  // namespace kvtide::testing
