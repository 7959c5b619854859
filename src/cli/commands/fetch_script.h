// fetch_script.h: tools/fetch_model.py, as it was when the program was built.
#pragma once

namespace kvtide {

extern const char* const kFetchScript;

}  // namespace kvtide
