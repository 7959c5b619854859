// views.h: the arrays that look into a state, and what they forbid.
//
// While an array lives, its rows stay in memory and a transition that would take them away is refused with a
// BufferError, as bytearray refuses to be resized. Appending is never refused. Ownership: shared by the
// object whose rows are looked at and by each array; the arrays may be the last to go. Thread rules: any
// thread, since other libraries may let go of an array without the GIL.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "kvtide/state.h"
#include "misuse.h"

namespace kvtide::python {

class Views {
 public:
  using Entry = std::list<PosRange>::iterator;

  Entry add(const PosRange& rows) {
    const std::lock_guard lock(mutex_);
    return rows_.insert(rows_.end(), rows);
  }
  void remove(Entry entry) {
    const std::lock_guard lock(mutex_);
    rows_.erase(entry);
  }
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return rows_.size();
  }

  // Throws Misuse(viewed) when an array shows a position of `range`.
  void check_free(const PosRange& range, const char* what) const {
    const std::lock_guard lock(mutex_);
    const auto shown = std::count_if(rows_.begin(), rows_.end(), [&](const PosRange& rows) {
      return rows.first < range.last && range.first < rows.last;
    });
    if (shown == 0) return;
    throw Misuse("viewed", std::string("cannot ") + what + ": " + std::to_string(shown) +
                               (shown == 1 ? " array shows" : " arrays show") +
                               " rows that would go; delete the array or keep a copy of it first");
  }
  void check_free(const TransitionPlan& plan) const {
    constexpr Pos kEnd = Pos{1} << 62;
    if (const auto* t = std::get_if<Truncate>(&plan.transition()))
      check_free({t->length - plan.expected().read_again, kEnd}, "truncate");
    if (const auto* t = std::get_if<Drop>(&plan.transition())) check_free(t->range, "drop");
  }
  void check_none(const char* what) const { check_free({0, Pos{1} << 62}, what); }

 private:
  mutable std::mutex mutex_;
  std::list<PosRange> rows_;
};

}  // namespace kvtide::python
