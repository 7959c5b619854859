// active_part.h: one text of a forward pass while its layers run.
//
// Its rows lie in [begin, begin + count) of every array of the workspace.
#pragma once

#include <cstdint>
#include <string>

#include "kvtide/error.h"
#include "model/decoder.h"
#include "model/far_share_samples.h"
#include "model/query_views.h"
#include "state/state.h"

namespace kvtide {

struct ActivePart {
  const PassPart& asked;
  KvState::Step step;
  std::int64_t begin, count;
  StepAngles angles;
  FarShareSamples samples;
  std::string not_finite;
};

// What a part carries may turn out not to be finite: then it alone fails.
template <class Call>
void carrying(ActivePart& part, Call call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::numeric) throw;
    part.not_finite = error.what();
  }
}

}  // namespace kvtide
