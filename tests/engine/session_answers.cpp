// session_answers.cpp: reads ids through a session and says what came out, for
// tools/references/compare_zaya.py.
//
//   session_answers MODEL IDS OUT CHUNKS GREEDY
//
// Reads the int32 ids of the file IDS in calls of the sizes CHUNKS ("3,2": the last one repeats), then GREEDY
// tokens one by one, the likeliest each time. Writes f32 to OUT: the logits of every position
// [positions][vocabulary]; to OUT.state: of every layer keys and values [kv_heads][position][head_dim], then
// the carried tensors, all as they are behind the ids. Prints the tokens it chose.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/mapped_file.h"
#include "kvtide/error.h"
#include "kvtide/session.h"

namespace {

using namespace kvtide;

void put(std::ofstream& out, std::span<const float> values) {
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
}

void write_state(const State& state, const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  const StateShape shape = state.shape();
  for (int layer = 0; layer < static_cast<int>(shape.layers.size()); ++layer)
    for (const KvPart part : {KvPart::keys, KvPart::values}) {
      const StateLayer& l = shape.layers[static_cast<std::size_t>(layer)];
      std::vector<float> rows(static_cast<std::size_t>(l.kv_heads * state.position() * l.head_dim));
      state.read(layer, part, {0, state.position()}, rows);
      put(out, rows);
    }
  for (const CarriedTensor& tensor : state.carried()) put(out, tensor.values);
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return 2;
  try {
    const MappedFile file(words[2]);
    std::vector<TokenId> ids(file.bytes().size() / sizeof(TokenId));
    std::memcpy(ids.data(), file.bytes().data(), ids.size() * sizeof(TokenId));
    ModelOptions loading;
    loading.context = static_cast<std::int64_t>(ids.size()) + std::atoi(words[5]);
    const Model model(words[1], loading);
    SessionOptions options;
    options.exact = true;
    options.key_type = options.value_type = ElementType::f32;
    options.threads = 2;
    Session session(model, options);
    std::ofstream out(words[3], std::ios::binary);
    ReadOptions read;
    read.logits_from = 0;
    read.on_logits = [&](Pos, std::span<const float> row) { put(out, row); };
    std::istringstream sizes(words[4]);
    std::string word;
    std::size_t step = ids.size();
    for (std::size_t at = 0; at < ids.size(); at += step) {
      if (std::getline(sizes, word, ',')) step = static_cast<std::size_t>(std::atoi(word.c_str()));
      if (step == 0) step = ids.size();
      session.read(std::span(ids).subspan(at, std::min(step, ids.size() - at)), read);
    }
    write_state(session.state(), std::string(words[3]) + ".state");
    for (int i = 0; i < std::atoi(words[5]); ++i) {
      const auto logits = session.logits();
      const auto next = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      std::printf("%d ", next);
      session.read({&next, 1}, read);
    }
    std::printf("\n");
    return out.good() ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "session_answers: %s\n", error.message().c_str());
    return 1;
  }
}
