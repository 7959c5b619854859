// conversation.h: the turns of a chat and the KV memory that holds them. A turn reads only what is new.
//
// Ownership: refers to the arguments and the model. Thread rules: those of Session.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands/answer.h"
#include "cli/commands/exit_status.h"
#include "cli/commands/live_memory.h"
#include "cli/commands/opening.h"
#include "cli/output/report.h"
#include "kvtide/error.h"

namespace kvtide {

class Conversation {
 public:
  // Goes on behind the snapshot of --load-state, if there is one.
  Conversation(const Arguments& arguments, OpenModel& open);

  // A snapshot holds what was read, not who said it: the next message goes behind the end of an answer.
  void load(const std::string& path);
  // Forgets all turns, and with them their memory.
  void clear();
  // Takes the last message and its answer back, and says so.
  void undo();
  // Asks something else instead of the last message.
  void edit(const std::string& text);
  // One turn. Failures that leave the conversation usable are said, and remembered as the exit status.
  void turn(const std::string& text);

  LiveMemory& memory() { return memory_; }
  RunReport& report() { return report_; }
  int status() const { return status_; }
  void remember(const Error& error) {
    if (status_ == kExitFine) status_ = exit_status(error.code());
  }

 private:
  struct Mark {  // where a turn began
    Pos position = 0;
    std::int64_t upheavals = 0;
    std::size_t messages = 0;
    std::size_t text = 0;  // bytes of the talk that the memory held
  };

  void forget_memory();
  // What came before a message, bit for bit, and how many tokens of it were read again behind a checkpoint; nullopt,
  // and nothing has changed, where all of them would have to be.
  std::optional<std::int64_t> take_back(const Mark& mark);
  bool can_go_back_to(Pos length) const;
  // Takes back what the memory holds behind the first `keep` tokens of the talk, and says how many are read again.
  // False: a window has moved on, and the memory is empty now. Throws Error(unsupported) behind a snapshot.
  bool keep_only(std::size_t keep, std::size_t held);
  std::int64_t upheavals() const { return memory_.refill_count() + rereads_; }
  void go_on_behind_snapshot();
  std::vector<TextSegment> rendered() const;
  EncodeOptions encoding() const;
  // What is to be read of the talk. The memory holds the rest.
  ChatRest new_tokens();
  void answer_last();
  void say_why_it_ended(const Generated& generated);
  void add_to_report(const Answer& result);
  void say_figures(const TurnFigures& turn) const;

  const Arguments& arguments_;
  OpenModel& open_;
  ChatTemplate template_;
  AnswerOptions options_;
  ContextGuard guard_;
  LiveMemory memory_;
  std::vector<ChatMessage> messages_;
  std::string held_;          // the text of the talk that the memory holds; empty: none
  Pos base_ = 0;              // where it begins: behind a snapshot, or at the start
  std::int64_t rereads_ = 0;  // so far: positions before one mean nothing after it
  std::vector<Mark> turns_;   // that can be taken back, the newest last
  bool behind_snapshot_ = false;
  RunReport report_;
  int status_ = kExitFine;
};

}  // namespace kvtide
