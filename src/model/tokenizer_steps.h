// tokenizer_steps.h: the normalizer, pre_tokenizer and decoder of a tokenizer.json as steps of a pipeline.
#pragma once

#include "base/json/json_fields.h"
#include "text/pipeline_spec.h"

namespace kvtide {

// `json`: the whole file. Sets normalizers, splits and byte_level. Throws Error: bad_format, unsupported.
void read_steps(const JsonFields& json, PipelineSpec& pipeline);

// Whether decoding takes a space off the front of a text.
bool decoder_strips(const JsonFields& json);

}  // namespace kvtide
