#include "runtime/train/progress.hpp"

#include <bit>
#include <cmath>
#include <stdexcept>

#include "runtime/checkpoint/json_text.hpp"

namespace mgpu::train {
namespace {

using checkpoint::Fields;
using checkpoint::Json;

constexpr std::int64_t kMostSteps = INT64_MAX;

double finite_number(const Fields& fields, const char* key) {
  const double value = fields.number(key);
  if (!std::isfinite(value)) fields.fail(key, "a finite number");
  return value;
}

std::uint64_t seed_in(const Fields& fields, const char* key) {
  if (!fields.has(key) || !fields.at(key).is_number_unsigned())
    fields.fail(key, "a whole number from 0");
  return fields.at(key).get<std::uint64_t>();
}

Fingerprint fingerprint_in(const Fields& top, const std::string& file) {
  const auto& object = top.at("fingerprint");
  if (!object.is_object()) top.fail("fingerprint", "an object");
  const Fields values(object, file + ": fingerprint");
  Fingerprint fingerprint;
  for (const auto& [key, value] : object.items()) fingerprint[key] = values.string(key.c_str());
  return fingerprint;
}

Json loss_scale_json(const LossScaleState& state) {
  return {{"scale", state.scale},
          {"clean_steps", state.clean_steps},
          {"hysteresis_left", state.hysteresis_left},
          {"overflows_at_least", state.overflows_at_least}};
}

LossScaleState loss_scale_in(const Fields& top, const std::string& file) {
  const auto& object = top.at("loss_scale");
  if (!object.is_object()) top.fail("loss_scale", "an object");
  const Fields values(object, file + ": loss_scale");
  LossScaleState state;
  state.scale = finite_number(values, "scale");
  if (state.scale <= 0) values.fail("scale", "a number above 0");
  state.clean_steps = values.integer("clean_steps", 0, kMostSteps);
  state.hysteresis_left = values.integer("hysteresis_left", 0, kMostSteps);
  state.overflows_at_least = values.integer("overflows_at_least", 0, kMostSteps);
  return state;
}

Json oom_json(const OomState& state) {
  return {{"changes", state.changes},
          {"pieces", state.pieces},
          {"oom_count", state.oom_count},
          {"jobs", state.jobs}};
}

OomState oom_in(const Fields& values) {
  constexpr std::int64_t kMost = 1 << 20;
  OomState state;
  state.changes = values.strings("changes");
  state.pieces = values.integer("pieces", 1, kMost);
  if (!std::has_single_bit(static_cast<std::uint64_t>(state.pieces)))
    values.fail("pieces", "a power of two");
  state.oom_count = values.integer("oom_count", 0, kMost);
  state.jobs = values.strings("jobs");
  return state;
}

}  // namespace

std::string oom_state_text(const OomState& state) {
  return oom_json(state).dump() + "\n";
}

OomState parse_oom_state(std::string_view text, const std::string& file) {
  const Json json = checkpoint::parse_json(text, file);
  if (!json.is_object()) throw std::runtime_error(file + ": need an object");
  return oom_in(Fields(json, file));
}

std::string progress_text(const Progress& p) {
  Json json{{"global_step", p.step},
            {"epoch", p.epoch},
            {"global_batch", p.global_batch},
            {"data_seed", p.data_seed},
            {"num_input_tokens_seen", p.tokens},
            {"updates", p.updates},
            {"evaluations_without_gain", p.evaluations_without_gain},
            {"best_metric", nullptr},
            {"best_global_step", nullptr},
            {"log_history", p.log_history},
            {"fingerprint", p.fingerprint}};
  if (p.best_metric) json["best_metric"] = *p.best_metric;
  if (p.best_step) json["best_global_step"] = *p.best_step;
  if (p.loss_scale) json["loss_scale"] = loss_scale_json(*p.loss_scale);
  if (p.oom) json["oom"] = oom_json(*p.oom);
  if (!p.gemms.is_null()) json["gemm_choices"] = p.gemms;
  if (!p.task_state.is_null()) json["task_state"] = p.task_state;
  return json.dump(1) + "\n";
}

Progress parse_progress(std::string_view text, const std::string& file) {
  const Json json = checkpoint::parse_json(text, file);
  checkpoint::check_kept(json, file);
  const Fields top(json, file);
  Progress p;
  p.step = top.integer("global_step", 0, kMostSteps);
  p.epoch = finite_number(top, "epoch");
  p.global_batch = top.integer("global_batch", 0, kMostSteps);
  p.data_seed = seed_in(top, "data_seed");
  p.tokens = top.integer("num_input_tokens_seen", 0, kMostSteps);
  p.updates = top.integer("updates", 0, kMostSteps);
  p.evaluations_without_gain = top.integer("evaluations_without_gain", 0, kMostSteps);
  if (top.has("best_metric")) p.best_metric = finite_number(top, "best_metric");
  if (top.has("best_global_step")) p.best_step = top.integer("best_global_step", 0, kMostSteps);
  p.log_history = top.at("log_history");
  if (!p.log_history.is_array()) top.fail("log_history", "a list");
  if (top.has("fingerprint")) p.fingerprint = fingerprint_in(top, file);
  if (top.has("loss_scale")) p.loss_scale = loss_scale_in(top, file);
  if (top.has("oom")) {
    if (!top.at("oom").is_object()) top.fail("oom", "an object");
    p.oom = oom_in(Fields(top.at("oom"), file + ": oom"));
  }
  if (top.has("gemm_choices")) p.gemms = top.at("gemm_choices");
  if (top.has("task_state")) p.task_state = top.at("task_state");
  return p;
}

}  // namespace mgpu::train
