// stateful.h: a kvtide::StatefulModel as Python holds it: ids and a mask in, logits out, the state as arrays.
//
// Thread rules: every member is called under the GIL and gives it up while the model computes; a second call
// that arrives meanwhile is refused. Ownership: shares the model.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <string>

#include "kvtide/stateful.h"
#include "model.h"
#include "turn.h"

namespace kvtide::python {

using StatefulIds =
    nanobind::ndarray<const TokenId, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using StatefulBytes =
    nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

class PyStateful {
 public:
  PyStateful(const PyModel& model, const SessionOptions& options);
  ~PyStateful();
  PyStateful(const PyStateful&) = delete;
  PyStateful& operator=(const PyStateful&) = delete;

  nanobind::object predict(const StatefulIds& ids, const StatefulIds& mask);  // a copy of the logits
  std::int64_t past_length() const { return past_; }
  // (bytes of keyCache, bytes of valueCache, extents(), pastLen, the model's identity), f16 or f32 as dtypes()
  // says.
  nanobind::object state();
  nanobind::object dtypes() const;
  nanobind::object extents() const;  // of either cache
  // Arrays of the types of `key_type` and `value_type`, "f16" or "f32", with this number of rows.
  void set_state(const StatefulBytes& keys, const nanobind::str& key_type, const StatefulBytes& values,
                 const nanobind::str& value_type, std::int64_t rows, Pos past, const StatefulIds& tokens,
                 const nanobind::str& model);
  void reset();

 private:
  KvShape shape() const;

  std::shared_ptr<const Model> model_;  // outlives the other
  std::unique_ptr<StatefulModel> stateful_;
  StateShape memory_;
  std::int64_t past_ = 0;
  Turns turns_{"model"};
};

void bind_stateful(nanobind::module_& module);

}  // namespace kvtide::python
