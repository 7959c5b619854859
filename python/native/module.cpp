// module.cpp: kvtide._native, the thin part of the Python package. Its public face is python/kvtide/*.py,
// which checks arguments and speaks Python; what is here assumes arguments of the right type and never
// crashes on wrong values.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <span>
#include <vector>

#include "arguments.h"
#include "batch.h"
#include "chat_template.h"
#include "coreml.h"
#include "heads.h"
#include "kvtide/state_transition.h"
#include "misuse.h"
#include "model.h"
#include "running.h"
#include "serve.h"
#include "session.h"
#include "shard.h"
#include "state.h"
#include "stateful.h"
#include "validation.h"

namespace nb = nanobind;

namespace kvtide::python {
namespace {

using ConstBytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using Shape = nb::typed<nb::tuple, std::int64_t, nb::ellipsis>;

std::vector<std::int64_t> shape_of(const Shape& sizes) { return vector_of<std::int64_t>(sizes, "shape"); }

void move_dense(const ConstBytes& source, const Shape& source_shape, const Bytes& target,
                const Shape& target_shape, Pos position, const nb::bytes& pad, bool target_is_padded,
                bool target_is_fresh) {
  const auto* element = static_cast<const std::byte*>(pad.data());
  TransitionOptions options;
  options.pad.assign(element, element + pad.size());
  options.target_is_padded = target_is_padded;
  options.target_is_fresh = target_is_fresh;
  const bool zeros =
      std::all_of(options.pad.begin(), options.pad.end(), [](std::byte b) { return b == std::byte{0}; });
  const DenseSource from{std::as_bytes(std::span(source.data(), source.size())), shape_of(source_shape)};
  const DenseTarget to{std::as_writable_bytes(std::span(target.data(), target.size())),
                       shape_of(target_shape)};
  const Running running;
  const WithoutGil others_run;
  // compact() takes targets of any length, transition() paddings of any value.
  if (zeros)
    compact(from, to, position, options);
  else
    transition(from, to, position, options);
}

}  // namespace
}  // namespace kvtide::python

NB_MODULE(_native, module) {
  using namespace kvtide::python;
  // What is alive when the interpreter exits was not leaked: its owner simply did not close it.
  nb::set_leak_warnings(false);
  bind_errors(module);
  bind_running(module);
  bind_chat_template(module);
  bind_model(module);
  bind_heads(module);
  bind_session(module);
  bind_batch(module);
  bind_serve(module);
  bind_state(module);
  bind_shard(module);
  bind_stateful(module);
  bind_coreml(module);
  bind_validation(module);
  module.def("move_dense", &move_dense, nb::arg("source").noconvert(), nb::arg("source_shape"),
             nb::arg("target").noconvert(), nb::arg("target_shape"), nb::arg("position"), nb::arg("pad"),
             nb::arg("target_is_padded"), nb::arg("target_is_fresh"),
             "Fills a dense array from another; see kvtide/state_transition.h.");
}
