// What attention sees: masks, windows, and positions, by how the text is cut into calls.
#include <algorithm>

#include "base/text.h"
#include "validate/inspection.h"
#include "validate/mistakes.h"

namespace kvtide {
namespace {

constexpr const char* kLongMask =
    "The mask must be as long as all that is active, past and new, not as long as the call.";
constexpr const char* kSamePosition = "Queries and keys of a token are rotated for the same position.";
constexpr const char* kOwnPosition =
    "Token t of a call that begins at position n stands at n + t: look at what is counted, and when.";
constexpr const char* kOwnCall = "every token sees the rows of its own call and none of earlier calls";

using Visible = std::function<bool(Pos, Pos, bool)>;

Mistake mask(const char* cause, std::string what, const char* advice, Visible visible) {
  return {cause, "attention", std::move(what), advice, {.visible = std::move(visible)}, true};
}

Mistake place(const char* cause, std::string what, std::function<Pos(Pos)> position) {
  return {cause, "attention", std::move(what), kOwnPosition, {.position = std::move(position)}, true};
}

Mistake window(std::string what, const char* advice, Slip slip, double number = 0.0) {
  return {"window", "attention", std::move(what), advice, {.slip = slip, .number = number}};
}

std::vector<Mistake> of_windows() {
  constexpr const char* kWindow = "A window of w positions holds the token itself and w - 1 earlier ones.";
  return {
      window("the window is one row longer than it should be", kWindow, Slip::window_longer, 1),
      window("the window is one row shorter than it should be", kWindow, Slip::window_longer, -1),
      window("the window is twice as long as it should be", kWindow, Slip::window_times, 2),
      window("the window is half as long as it should be", kWindow, Slip::window_times, 0.5),
      window("the window is ignored", "This layer sees a sliding window only.", Slip::window_ignored),
  };
}

}  // namespace

std::vector<Mistake> mistakes_of_masks(const Schedule& schedule) {
  const std::vector<Pos> starts = schedule.starts();
  const auto start_of = [starts](Pos t) { return *(std::upper_bound(starts.begin(), starts.end(), t) - 1); };
  // A schedule may leave the last token of the text, which is then in no call: it ends behind itself.
  const auto end_of = [starts](Pos t) {
    const auto end = std::upper_bound(starts.begin(), starts.end(), t);
    return end == starts.end() ? t + 1 : *end;
  };
  const std::int64_t capacity = schedule.tokens() + 8;
  std::vector<Mistake> out = {
      mask("mask_too_short", "every token of a call of 1 sees its own row and no other", kLongMask,
           [=](Pos t, Pos row, bool usual) {
             return end_of(t) - start_of(t) == 1 && t > 0 ? row == t : usual;
           }),
      mask("mask_too_short", kOwnCall, kLongMask,
           [=](Pos t, Pos row, bool usual) { return usual && row >= start_of(t); }),
      mask("mask_too_short", "tokens of calls of 1 see the first row only", kLongMask,
           [=](Pos t, Pos row, bool usual) { return end_of(t) - start_of(t) == 1 ? row == 0 : usual; }),
      mask("own_row_hidden", "no token sees its own row",
           "Attention reads the state after the token was written into it.",
           [=](Pos t, Pos row, bool usual) { return usual && (row != t || t == 0); }),
      mask("row_written_late",
           "no token sees the rows of its own call: they are written after attention has read",
           "Write the call's keys and values into the state before attention reads it.",
           [=](Pos t, Pos row, bool usual) { return usual && (row < start_of(t) || t == 0); }),
      {"row_written_late",
       "attention",
       "the rows of a call are written after attention has read: it finds zeros in their slots",
       "Write the call's keys and values into the state before attention reads it.",
       {.visible = [=](Pos t, Pos row, bool usual) { return usual && row < start_of(t); },
        .empty_rows = [=](Pos t) { return t - start_of(t) + 1; }},
       true},
      mask("first_row_hidden", "no token but the first sees row 0", "The visible slots begin at 0, not at 1.",
           [=](Pos t, Pos row, bool usual) { return usual && (row > 0 || t == 0); }),
      mask("not_causal", "tokens see the later tokens of their own call", kCausal,
           [=](Pos t, Pos row, bool usual) { return usual || (row > t && row < end_of(t)); }),
      mask("not_causal", "tokens see one token behind their own", kCausal,
           [=](Pos t, Pos row, bool usual) { return usual || (row == t + 1 && row < end_of(t)); }),
      {"stale_rows",
       "attention",
       cat("rows of zeros that no token has written take part in the softmax, as if all ", capacity,
           " slots were visible"),
       "The mask must hide every slot that is not written yet.",
       {.empty_rows = [=](Pos t) { return capacity - 1 - t; }},
       true},
      {"stale_rows",
       "attention",
       "one row of zeros behind the newest takes part in the softmax",
       "The mask must hide every slot that is not written yet: it ends at the newest token's.",
       {.empty_rows = [=](Pos t) { return t + 1 == end_of(t) ? 1 : 0; }},
       true},
      {"query_position",
       "attention",
       "queries are rotated one position too far, keys are right",
       kSamePosition,
       {.query_shift = 1}},
      {"query_position",
       "attention",
       "queries are rotated one position too little, keys are right",
       kSamePosition,
       {.query_shift = -1}},
      {"heads_interleaved",
       "attention",
       "what attention gives is laid out as [heads, tokens] and read as [tokens, heads] within a call",
       "Transpose [heads, tokens, dim] to [tokens, heads, dim] before the output projection; with one token "
       "a "
       "call both are the same, which is why calls of 1 look right.",
       {.mixed_chunks = starts},
       true},
      place("position_in_call", "positions are counted within the call: every call begins at position 0",
            [=](Pos t) { return t - start_of(t); }),
      place("position_off_by_one", "from the second call on positions are one behind",
            [=](Pos t) { return start_of(t) == 0 ? t : t - 1; }),
      place("position_off_by_one", "from the second call on positions are one ahead",
            [=](Pos t) { return start_of(t) == 0 ? t : t + 1; }),
      place("position", "all tokens of a call stand at the position of its first", start_of),
  };
  for (Mistake& one : out) one.needs_rows = one.what == kOwnCall;
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8})
    out.push_back(
        {"stale_rows",
         "attention",
         cat(rows, rows == 1 ? " row" : " rows", " of zeros behind the newest take part in the softmax"),
         "The mask must hide every slot that is not written yet: it ends at the newest token's.",
         {.empty_rows = [=](Pos) { return rows; }}});
  for (const std::int64_t slots : {32, 64, 128, 256, 512, 1024, 2048, 4096})
    out.push_back({"stale_rows",
                   "attention",
                   cat("all ", slots, " slots take part in the softmax, written or not"),
                   "The mask must hide every slot that is not written yet.",
                   {.empty_rows = [=](Pos t) { return std::max<std::int64_t>(0, slots - 1 - t); }}});
  for (Mistake& one : of_windows()) out.push_back(std::move(one));
  return out;
}

}  // namespace kvtide
