#include "serve/routes/answer_format.h"

#include <utility>

#include "base/text.h"

namespace kvtide::serve {
namespace answer_format {

// A client that has left so many bytes unread gets no more until it reads.
constexpr std::size_t kMostUnread = std::size_t{256} << 10;

class Listener final : public AnswerListener {
 public:
  Listener(std::shared_ptr<Reply> reply, std::unique_ptr<AnswerFormat> format, int choices, bool stream,
           std::optional<ToolUse> tools)
      : reply_(std::move(reply)),
        format_(std::move(format)),
        tools_(std::move(tools)),
        stream_(stream),
        written_(static_cast<std::size_t>(choices)) {
    for (int i = 0; i < choices; ++i) {
      written_[static_cast<std::size_t>(i)].index = i;
      if (tools_) static_cast<void>(parsers_.emplace_back(tools_->format, tools_->tools).feed(tools_->begun));
    }
  }

  void begun(const AnswerFigures& figures) override {
    if (!stream_) return;
    reply_->open("text/event-stream");
    opened_ = true;
    write(format_->opening(figures));
  }
  void piece(AnswerPiece piece) override {
    Written& choice = written_[static_cast<std::size_t>(piece.choice)];
    std::vector<ToolEvent> events;
    if (tools_) {
      events = parsers_[static_cast<std::size_t>(piece.choice)].feed(piece.text);
      piece.text = take_text_in_front(events);
    }
    choice.text += piece.text;
    choice.tokens.insert(choice.tokens.end(), piece.tokens.begin(), piece.tokens.end());
    if (stream_) write(format_->piece(piece));
    for (TokenLogprob& logprob : piece.logprobs) choice.logprobs.push_back(std::move(logprob));
    tell(choice, events);
  }
  void ended(int index, StopReason reason, const std::string& stop) override {
    Written& choice = written_[static_cast<std::size_t>(index)];
    if (tools_) tell(choice, parsers_[static_cast<std::size_t>(index)].finish());
    choice.reason = reason;
    choice.stop = stop;
    if (stream_) write(format_->ended(choice));
  }
  void done(const AnswerFigures& figures) override {
    if (!stream_) return reply_->send({200, "application/json", format_->whole(written_, figures)});
    write(format_->closing(written_, figures));
    reply_->close();
  }
  void failed(const Error& error) override {
    const Problem problem = problem_of(error);
    if (!opened_) return reply_->send(problem_response(problem, format_->dialect()));
    write(format_->problem(problem));
    reply_->close();
  }
  bool gone() const override { return reply_->gone(); }
  bool stalled() const override { return reply_->waiting() > kMostUnread; }

 private:
  // The text that comes before any call goes with the piece's tokens.
  static std::string take_text_in_front(std::vector<ToolEvent>& events) {
    if (events.empty() || events[0].kind != ToolEvent::Kind::text) return "";
    std::string out = std::move(events[0].text);
    events.erase(events.begin());
    return out;
  }
  void tell(Written& choice, const std::vector<ToolEvent>& events) {
    for (const ToolEvent& event : events) {
      if (event.kind == ToolEvent::Kind::text) {
        choice.text += event.text;
        if (stream_) write(format_->piece({choice.index, event.text, {}, {}}));
        continue;
      }
      if (event.kind == ToolEvent::Kind::call) {
        silent_ = !tools_->parallel && !choice.calls.empty();
        if (!silent_) choice.calls.push_back({tools_->new_id(), event.text, ""});
      }
      if (silent_) continue;
      if (event.kind == ToolEvent::Kind::arguments) choice.calls.back().arguments += event.text;
      if (!stream_) continue;
      write(event.kind == ToolEvent::Kind::call        ? format_->call_begun(choice)
            : event.kind == ToolEvent::Kind::arguments ? format_->call_grew(choice, event.text)
                                                       : format_->call_ended(choice));
    }
  }
  void write(std::string events) {
    if (!events.empty()) reply_->write(std::move(events));
  }

  std::shared_ptr<Reply> reply_;
  std::unique_ptr<AnswerFormat> format_;
  std::optional<ToolUse> tools_;
  std::vector<ToolCallParser> parsers_;  // by choice
  bool silent_ = false;                  // a second call where one was wanted
  bool stream_, opened_ = false;
  std::vector<Written> written_;
};

}  // namespace answer_format

std::string server_event(const Json& data, std::string_view name) {
  return cat(name.empty() ? "" : "event: ", name, name.empty() ? "" : "\n", "data: ", data.text(false),
             "\n\n");
}

std::shared_ptr<AnswerListener> answer_to(std::shared_ptr<Reply> reply, std::unique_ptr<AnswerFormat> format,
                                          int choices, bool stream, std::optional<ToolUse> tools) {
  return std::make_shared<answer_format::Listener>(std::move(reply), std::move(format), choices, stream,
                                                   std::move(tools));
}

}  // namespace kvtide::serve
