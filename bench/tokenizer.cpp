// Bytes of text per second that a tokenizer turns into ids, on one thread: the median of some rounds, each
// through a fresh call on the whole text.
//
//   bench_tokenizer MODEL TEXT [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "base/stopwatch.h"
#include "kvtide/model.h"

int main(int count, char** words) {
  if (count < 3) {
    std::fprintf(stderr, "usage: bench_tokenizer MODEL TEXT [ROUNDS]\n");
    return 2;
  }
  std::ifstream file(words[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (text.empty()) {
    std::fprintf(stderr, "%s: nothing to read\n", words[2]);
    return 1;
  }
  const kvtide::Model model(words[1]);
  std::vector<double> seconds;
  std::size_t tokens = 0;
  for (int round = count > 3 ? std::atoi(words[3]) : 5; round > 0; --round) {
    const kvtide::Stopwatch watch;
    tokens = model.tokenizer().encode(text).size();
    seconds.push_back(watch.seconds());
  }
  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[seconds.size() / 2];
  std::printf("%zu tokens of %zu bytes, %.1f MB/s (best %.1f)\n", tokens, text.size(),
              static_cast<double>(text.size()) / median * 1e-6,
              static_cast<double>(text.size()) / seconds.front() * 1e-6);
}
