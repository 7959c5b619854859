// evidence_twist.h: which known mistake a wrong result is: the reference is computed with each of them, and
// what is then left of the difference tells.
//
// Thread rules: one caller at a time.
#pragma once

#include <vector>

#include "validate/inspection.h"
#include "validate/mistakes.h"
#include "validate/wrong_layer.h"

namespace kvtide {

// A mistake fits when it explains nineteen twentieths; one mistake should explain all that is wrong. The best first,
// one of each name; behind it only those that fit as well.
std::vector<Fit> fits_of_layer(Inspection& in, const WrongLayer& wrong);
// Of the stream that enters layer 0; of logits behind layers that are right; of logits with nothing known of
// layers.
std::vector<Fit> fits_of_embedding(Inspection& in);
std::vector<Fit> fits_of_head(Inspection& in);
std::vector<Fit> fits_of_model(Inspection& in);

// The finding of one fit; `where` holds what is the same for all of them.
Finding finding_of(const Fit& fit, Finding where, const std::string& begins, const std::string& ends);

}  // namespace kvtide
