// terminal.h: where words go. Results go to stdout, everything else to stderr; a terminal may be redrawn, a
// file not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvtide/error.h"

namespace kvtide {

// Nobody reads stdout any more (`| head`). Ends the program without a word, as SIGPIPE ends others.
struct ReaderGone : Error {
  ReaderGone() : Error(ErrorCode::io, "stdout: nobody reads it any more") {}
};

// Writes all of `text` to stdout, at once. Throws ReaderGone, or Error(io) when it cannot for another reason (a full disk).
void write_result(std::string_view text);

// One line on stderr.
void say(std::string_view line);

// stderr is a terminal whose lines may be redrawn: not when NO_COLOR is set or TERM is "dumb".
bool can_redraw();

std::size_t terminal_width();  // columns of stderr; 80 where it does not say

bool stdin_is_terminal();

// Text without a line feed on stderr: what invites the user to type.
void prompt_on_terminal(std::string_view text);

// Replaces the line at the cursor of stderr; needs can_redraw(). An empty text wipes it.
void redraw(std::string_view line);

std::string bytes_text(std::int64_t bytes);         // "12.7 MiB"
std::string count_text(std::int64_t count);         // "1,234,567"
std::string number_text(double value, int digits);  // fixed notation
std::string time_text(double seconds);              // "310 ms", "12.4 s", "3:05 min"

}  // namespace kvtide
