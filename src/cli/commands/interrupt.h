// interrupt.h: Ctrl-C. The first asks the program to stop at the next safe point, the second ends it at once.
//
// Thread rules: install once, from main; interrupted() from any thread. The flag is the one mutable global of
// the program: a signal handler has no other way to speak.
#pragma once

namespace kvtide {

// Reading from a terminal is interrupted too (no SA_RESTART). A stdout that nobody reads any more and a file
// that grows beyond its limit become write errors instead of signals.
void install_interrupt_handler();

bool interrupted() noexcept;
// Takes the request back, and makes Ctrl-C ask again: a chat goes on after an answer that was cut short.
void forget_interrupt() noexcept;

// Waits until there is something to read (or the end of it) or Ctrl-C was pressed, also by a hair's breadth before: a
// read alone would then wait for the next key.
void wait_for_input(int descriptor) noexcept;

// Throws Error(cancelled) with `what` when Ctrl-C was pressed.
void stop_if_interrupted(const char* what);

}  // namespace kvtide
