// kvtide ppl: how well a model predicts a text, in chunks (llama-perplexity's rule) or in one stream.

#include "base/json/json.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/input_text.h"
#include "cli/commands/interrupt.h"
#include "cli/commands/opening.h"
#include "cli/optional/optional_actions.h"
#include "cli/optional/ppl_against.h"
#include "cli/output/memory_event.h"
#include "cli/output/output_file.h"
#include "cli/output/procedural_report.h"
#include "cli/output/progress.h"
#include "cli/output/terminal.h"
#include "eval/perplexity.h"

namespace kvtide {
namespace {

constexpr std::int64_t kDefaultChunk = 512;

std::string score_text(const Perplexity& score) {
  return cat("ppl ", number_text(score.ppl, 4), " +/- ", number_text(score.standard_error, 4), " over ",
             count_text(score.tokens_scored), " tokens\n");
}

Json score_json(const Perplexity& score, double seconds) {
  Json json = Json::object();
  json.set("ppl", score.ppl)
      .set("ppl_se", score.standard_error)
      .set("tokens_scored", score.tokens_scored)
      .set("chunks", Json::array(score.running))
      .set("seconds", seconds);
  return json;
}

void print_chunks(const Arguments& arguments, const Perplexity& score, double seconds) {
  if (arguments.json) return write_result(score_json(score, seconds).text() + "\n");
  std::string text;
  for (std::size_t i = 0; i < score.running.size(); ++i)
    text += cat("[", i + 1, "] ", number_text(score.running[i], 4), "\n");
  write_result(text + score_text(score));
}

void print_stream(const Arguments& arguments, const StreamedPerplexity& score, const Session& session,
                  double seconds) {
  Json events = Json::array();
  for (const AttentionChange& change : session.attention_changes()) {
    say(event_text(event_of(change)));
    events.push(event_json(event_of(change)));
  }
  if (arguments.json) {
    Json buckets = Json::array();
    for (const DepthBucket& bucket : score.buckets) {
      Json item = Json::object();
      item.set("first", bucket.first)
          .set("last", bucket.last)
          .set("ppl", bucket.ppl)
          .set("ppl_se", bucket.standard_error)
          .set("tokens_scored", bucket.tokens);
      buckets.push(std::move(item));
    }
    return write_result(score_json(score.overall, seconds)
                            .set("buckets", std::move(buckets))
                            .set("events", std::move(events))
                            .set("drift", drift_json(session.drift()))
                            .text() +
                        "\n");
  }
  std::string text;
  for (const DepthBucket& bucket : score.buckets)
    text += cat("positions ", count_text(bucket.first), " to ", count_text(bucket.last - 1), ": ppl ",
                number_text(bucket.ppl, 4), " +/- ", number_text(bucket.standard_error, 4), "\n");
  write_result(text + score_text(score.overall));
}

}  // namespace

int ppl_command(const Arguments& arguments) {
  if (!arguments.out.empty()) OutputFile::check(arguments.out);
  const InputText input = read_document(*arguments.file, arguments);
  const std::int64_t context = arguments.session.context != 0 ? arguments.session.context
                               : arguments.stream             ? 0
                                                              : kDefaultChunk;
  OpenModel open(arguments, context);
  Session& session = open.session;
  const std::int64_t context_to_read =
      (session.options().rolling || session.options().procedural) && context == 0 ? INT64_MAX
                                                                                  : session.context();

  Arguments plain = arguments;
  plain.no_special = true;  // markers in a text that is measured are text
  std::vector<TokenId> tokens = encode_text(open.model.tokenizer(), input, plain);
  const auto all = static_cast<std::int64_t>(tokens.size());
  // A rolling memory reads whatever there is, unless -c says how much.
  if (arguments.stream && all > context_to_read) tokens.resize(static_cast<std::size_t>(context_to_read));
  const auto count = static_cast<std::int64_t>(tokens.size());
  ContextGuard(session).before_reading(std::min(count, arguments.stream ? count : session.context()));
  const auto announce = [&] {
    say(open.headline());
    if (count < all)
      say(cat("scoring the first ", count_text(count), " of ", count_text(all), " tokens (-c)"));
  };

  if (arguments.against != Against::nothing) {
    announce();
    ppl_against(arguments, session, tokens);
    return kExitFine;
  }
  const Stopwatch watch;
  Progress progress("scoring", session);
  bool announced = false;
  const auto show = [&](const PerplexityProgress& at) {
    if (!announced) announce();  // after the first chunk: the text was not refused
    announced = true;
    const std::string drift = drift_words(session);
    progress.update(at.done, at.total, cat("ppl ", number_text(at.ppl, 3), drift.empty() ? "" : ", ", drift));
    return !interrupted() || at.done == at.total;
  };
  if (arguments.stream) {
    const StreamedPerplexity score = perplexity_by_depth(session, tokens, arguments.bucket, show);
    if (!arguments.out.empty()) {
      OutputFile file(arguments.out);
      for (const TokenId token : score.likeliest) file.write(cat(token, "\n"));
      file.commit();
    }
    print_stream(arguments, score, session, watch.seconds());
  } else {
    const Perplexity score = perplexity_by_chunks(session, tokens, session.context(), arguments.chunks, show);
    print_chunks(arguments, score, watch.seconds());
  }
  if (session.drift()) say(drift_line(*session.drift()));
  return kExitFine;
}

}  // namespace kvtide
