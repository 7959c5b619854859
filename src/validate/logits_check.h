// logits_check.h: the logits of a run against the reference's.
#pragma once

#include <cstddef>
#include <map>

#include "validate/inspection.h"

namespace kvtide {

// What one token's logits are like.
struct LogitsVerdict {
  std::size_t at = 0;  // in Run::known
  Likeness likeness;
  double kl = 0.0;
  bool same_top = false, fine = true;
  bool open = false;  // judged by the KL divergence only
};

// In coarse arithmetic the errors of many layers add up in front of every router, which passes them on in the
// shares of its experts. There the layers are judged one by one, and the chain by the KL divergence.
bool coarse_routers(const Inspection& in);

// Adds to the schedule's figures; whether all logits are right. `first`: of the first schedule, by position; the
// same numbers are judged once.
bool judge_logits(const Inspection& in, std::size_t schedule, const Run& run, ScheduleResult& result,
                  std::map<Pos, LogitsVerdict>& first);

}  // namespace kvtide
