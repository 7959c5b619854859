// What a strategy (prefill, compact, attend, expand) costs and saves against none: speed, bytes and
// perplexity.
//
//   strategy MODEL TEXT PROMPT NEW PREFILL COMPACT ATTEND EXPAND [ROUNDS]
//
// Reads PROMPT tokens of TEXT and then NEW more one by one, as an answer is written, scoring each. Three
// memories in turn: "none" keeps everything and sees everything; "strategy" is resized on the way; "large"
// has the strategy's attention sizes and room for everything: its logits must be the strategy's, bit for bit.
// Prints a Markdown table; exit status 1 when the logits differ.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "eval/perplexity.h"
#include "kvtide/session.h"

namespace {

using namespace kvtide;

struct Wanted {
  std::int64_t prompt, fresh, prefill, compact, attend, expand;
};

struct Outcome {
  double prefill_rate = 0.0, decode_rate = 0.0, ppl = 0.0;
  std::int64_t capacity_bytes = 0, held_bytes = 0;  // while writing, at the start; at the end
  std::uint64_t hash = 0;
  std::vector<TransitionRecord> transitions;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Outcome run(const Model& model, std::span<const TokenId> text, const Wanted& wanted, bool attends,
            bool resizes) {
  SessionOptions options;
  options.context = resizes ? wanted.prefill : wanted.prompt + wanted.fresh;
  Session session(model, options);
  Outcome out;
  const auto change = [&](const Transition& transition) {
    out.transitions.push_back(session.apply(transition));
  };
  const Stopwatch reading;
  session.read(text.first(static_cast<std::size_t>(wanted.prompt)));
  out.prefill_rate = static_cast<double>(wanted.prompt) / reading.seconds();
  const auto per_row = static_cast<double>(session.memory().kv) / static_cast<double>(session.rows());
  if (resizes) change(Compact{wanted.compact});
  if (attends) change(SetAttention{wanted.attend});
  out.capacity_bytes = static_cast<std::int64_t>(per_row * static_cast<double>(session.context()));

  double loss = 0.0, scoring = 0.0;
  const Stopwatch writing;
  for (std::int64_t i = 0; i < wanted.fresh; ++i) {
    const TokenId token = text[static_cast<std::size_t>(wanted.prompt + i)];
    const Stopwatch score;
    loss += negative_log_likelihood(session.logits(), token);
    out.hash = hash_logits(session.logits(), out.hash);
    scoring += score.seconds();
    if (session.room() < 1 && resizes) change(Expand{wanted.expand});
    session.read({&token, 1});
  }
  out.decode_rate = static_cast<double>(wanted.fresh) / (writing.seconds() - scoring);
  out.ppl = std::exp(loss / static_cast<double>(wanted.fresh));
  out.held_bytes = session.memory().kv;
  return out;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int measure(int argc, char** argv) {
  const auto number = [&](int i) { return std::strtoll(argv[i], nullptr, 10); };
  const Wanted wanted{number(3), number(4), number(5), number(6), number(7), number(8)};
  const long long rounds = argc > 9 ? number(9) : 3;
  const Model model(argv[1]);
  std::ifstream file(argv[2], std::ios::binary);
  // Enough for the tokens that are read: a token is rarely more than 16 bytes of a text.
  std::string content(static_cast<std::size_t>(wanted.prompt + wanted.fresh) * 16, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  while (!content.empty() && content.back() != '\n') content.pop_back();  // whole characters
  const std::vector<TokenId> text = model.tokenizer().encode(content);
  if (static_cast<std::int64_t>(text.size()) < wanted.prompt + wanted.fresh) {
    std::fprintf(stderr, "%s: only %zu tokens\n", argv[2], text.size());
    return 2;
  }

  const char* names[] = {"none", "strategy", "large, same attention"};
  Outcome last[3];
  std::vector<double> reading[3], writing[3];
  for (long long round = 0; round < rounds; ++round)
    for (int i = 0; i < 3; ++i) {
      last[i] = run(model, text, wanted, i > 0, i == 1);
      reading[i].push_back(last[i].prefill_rate);
      writing[i].push_back(last[i].decode_rate);
    }
  std::printf("%s: %lld tokens read, %lld written; prefill=%lld,compact=%lld,attend=%lld,expand=%lld\n\n",
              model.name().c_str(), number(3), number(4), number(5), number(6), number(7), number(8));
  std::printf(
      "| memory | reading, tok/s | writing, tok/s | room while writing, MiB | held at the end, MiB | "
      "perplexity of what "
      "is written |\n| --- | ---: | ---: | ---: | ---: | ---: |\n");
  for (int i = 0; i < 3; ++i)
    std::printf("| %s | %.0f | %.1f | %.1f | %.1f | %.3f |\n", names[i], median(reading[i]),
                median(writing[i]), static_cast<double>(last[i].capacity_bytes) / (1 << 20),
                static_cast<double>(last[i].held_bytes) / (1 << 20), last[i].ppl);
  std::printf("\n| transition | at | rows kept | capacity | ms |\n| --- | ---: | ---: | ---: | ---: |\n");
  for (const TransitionRecord& t : last[1].transitions)
    std::printf("| %s | %lld | %lld | %lld to %lld | %.4f |\n", t.name.c_str(),
                static_cast<long long>(t.position), static_cast<long long>(t.rows_kept),
                static_cast<long long>(t.capacity_before), static_cast<long long>(t.capacity_after),
                t.milliseconds);
  const bool same = last[1].hash == last[2].hash;
  std::printf("\nlogits of the strategy and of the large memory: %s\n\n",
              same ? "the same bits" : "DIFFERENT");
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 9 || argc > 10) {
    std::fprintf(stderr, "usage: strategy MODEL TEXT PROMPT NEW PREFILL COMPACT ATTEND EXPAND [ROUNDS]\n");
    return 2;
  }
  try {
    return measure(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "strategy: %s\n", error.what());
    return 2;
  }
}
