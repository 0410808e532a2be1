"""Compares GRPO's losses, gradients, advantages and metrics with the formulas, written in torch.

The formulas (`Formula`) use padded tensors and autograd; ours use ragged tensors and hand-written
gradients. If TRL is installed, the formulas are compared with TRL's own trainer.
"""

import collections
import importlib.machinery
import importlib.util
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

from trainer import BIN

try:
    import torch
except ImportError:
    torch = None


class Absent(types.ModuleType):
    """A stand-in for packages that TRL imports but its loss does not use."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def grpo_trainer():
    absent = []
    for name in ("pandas", "datasets", "datasets.distributed", "pyarrow", "pyarrow.compute",
                 "pyarrow.types"):
        whole = name.partition(".")[0]
        if whole in absent or importlib.util.find_spec(whole) is None:
            absent.append(name)
            sys.modules[name] = Absent(name)
            sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)
    try:
        from trl.trainer.grpo_trainer import GRPOTrainer as found
        return found
    except ImportError:
        return None
    finally:
        for name in absent:
            del sys.modules[name]


GRPOTrainer = torch and grpo_trainer()

TYPES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]
CLIPPED = ["grpo", "bnpo", "dr_grpo", "dapo", "luspo"]
LEVELS = ["token", "sequence"]
MODES = ["token_truncate", "token_mask", "sequence_truncate", "sequence_mask"]
DEFAULTS = dict(
    loss_type="dapo", importance_sampling_level="token", epsilon=0.2, epsilon_high=None,
    delta=None, beta=0.0, use_bias_correction_kl=True, off_policy_mask_threshold=None,
    top_entropy_quantile=1.0, entropy_coef=0.0, sapo_temperature_pos=1.0,
    sapo_temperature_neg=1.05, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0,
    vespo_lambda_neg=2.0, vllm_importance_sampling_mode="sequence_mask",
    vllm_importance_sampling_clip_max=3.0, vllm_importance_sampling_clip_min=None,
    loss_normalization="trl")
LENGTHS = [7, 1, 12, 4, 9]
ACCUMULATION, WORLD, PER_GENERATION, LONGEST = 3, 2, 6, 16


class Case:
    """Settings and random numbers, padded; `masked` rows have weight 0."""

    def __init__(self, seed, dtype, masked=(), old=True, sampler=False, **settings):
        generator = torch.Generator().manual_seed(seed)
        rows, columns = len(LENGTHS), max(LENGTHS)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        def near(values, by):
            return values + by * normal(rows, columns)
        self.settings = types.SimpleNamespace(**{**DEFAULTS, **settings})
        self.changed = {key: value for key, value in settings.items() if value is not None}
        log_probs = -normal(rows, columns).abs()
        self.places = torch.arange(columns)[None] < torch.tensor(LENGTHS)[:, None]
        self.weights = torch.tensor([float(row not in masked) for row in range(rows)])
        self.mask = (self.places * self.weights[:, None]).to(dtype)
        self.tensors = {"log_probs": log_probs, "entropies": normal(rows, columns).abs()}
        self.tensors["ref_log_probs"] = near(log_probs, 0.4)
        old_log_probs = near(log_probs, 0.25)
        if old:
            self.tensors["old_log_probs"] = old_log_probs
        if sampler:
            self.tensors["sampler_log_probs"] = near(old_log_probs, 0.2)
            self.tensors["sampler_log_probs"][2, 3] = math.nan
        self.tensors = {name: value.to(dtype) for name, value in self.tensors.items()}
        self.advantages = normal(rows).to(dtype)
        self.dtype = dtype
        # The generation batch is PER_GENERATION micro-steps on WORLD ranks; a window ACCUMULATION.
        self.generation_tokens = 40 * PER_GENERATION * WORLD
        self.window_tokens = 37 * ACCUMULATION * WORLD

    def ragged(self, padded):
        return [None if math.isnan(x) else x for x in padded.double()[self.places].tolist()]

    def to_json(self):
        rows = len(LENGTHS)
        return {
            "settings": {**CHANGED_DEFAULTS, **self.changed}, "double": self.dtype == torch.float64,
            **{name: self.ragged(value) for name, value in self.tensors.items()},
            "sequence": [i for i, length in enumerate(LENGTHS) for _ in range(length)],
            "advantages": self.advantages.tolist(), "weights": self.weights.tolist(),
            "denominators": {
                "completions": rows * ACCUMULATION * WORLD, "tokens": self.window_tokens,
                "micro_batches": ACCUMULATION * WORLD,
                "generation_completions": rows * PER_GENERATION * WORLD,
                "generation_tokens": self.generation_tokens, "max_completion_length": LONGEST}}


CHANGED_DEFAULTS = {"loss_normalization": "trl"}


class Formula:
    """The loss of one micro-batch on one of WORLD ranks, scaled as for DDP's average."""

    def __init__(self, case):
        self.s, self.m, self.case = case.settings, case.mask, case
        values = dict(case.tensors)
        self.lp = values["log_probs"].clone().requires_grad_()
        self.entropy = values["entropies"].clone().requires_grad_()
        self.old = values.get("old_log_probs", self.lp.detach())
        self.ref, self.sampler = values["ref_log_probs"], values.get("sampler_log_probs")
        self.advantage = case.advantages[:, None]
        self.lengths = self.m.sum(-1, keepdim=True).clamp(min=1)
        self.present = self.m.sum(-1) > 0
        self.metrics = {}

    def by_sign(self, yes, positive, negative):
        """One number or the other, in the right dtype: torch.where alone would give fp32."""
        return torch.where(yes, torch.tensor(positive, dtype=self.m.dtype),
                           torch.tensor(negative, dtype=self.m.dtype))

    def seq_mean(self, x):
        return (x * self.m).sum(-1, keepdim=True) / self.lengths

    def mean(self, x):
        """The mean over tokens, or over sequences if there is one number per sequence."""
        if x.shape[1] == 1:
            return x[self.present].mean().item()
        return ((x * self.m).sum() / self.m.sum()).item()

    def measure_clipping(self, low, high):
        self.metrics["clip_ratio/low_mean"] = self.mean(low)
        self.metrics["clip_ratio/high_mean"] = self.mean(high)
        self.metrics["clip_ratio/region_mean"] = self.mean(((low + high) > 0).to(low.dtype))
        rows = [self.seq_mean(x.expand_as(self.m))[self.present] for x in (low, high)]
        self.metrics["clip_ratio/low_min"] = rows[0].min().item()
        self.metrics["clip_ratio/high_max"] = rows[1].max().item()

    def sampler_ratio(self):
        d = (self.old - self.sampler) * self.m
        known = ~d.isnan() & (self.m > 0)
        self.metrics["sampling/sampling_logp_difference/mean"] = d[known].abs().mean().item()
        self.metrics["sampling/sampling_logp_difference/max"] = d[known].abs().max().item()
        d = d.nan_to_num(nan=0.0)
        mode = self.s.vllm_importance_sampling_mode
        ratio = (d.sum(-1, keepdim=True) if mode.startswith("sequence") else d).exp()
        low, high = (self.s.vllm_importance_sampling_clip_min,
                     self.s.vllm_importance_sampling_clip_max)
        if mode.endswith("truncate"):
            ratio = ratio.clamp(min=low, max=high)
        else:
            outside = ratio > high
            outside |= ratio < (low if low is not None else -math.inf)
            ratio = torch.where(outside, torch.zeros_like(ratio), ratio)
        flat = ratio[self.present] if mode.startswith("sequence") else ratio[self.m > 0]
        for name in ("min", "mean", "max"):
            value = getattr(flat, name)().item()
            self.metrics[f"sampling/importance_sampling_ratio/{name}"] = value
        return ratio

    def phi(self, log_ratio, is_ratio):
        s, lowest = self.s, math.log(1e-8)
        log_w = (log_ratio.clamp(-20, 20) * self.m).sum(-1, keepdim=True)
        if is_ratio is not None:
            log_w = log_w + (is_ratio.log().clamp(lowest, 20) * self.m).sum(-1, keepdim=True)
        log_w = log_w.clamp(lowest, 20)
        good = self.advantage >= 0
        k = self.by_sign(good, s.vespo_k_pos, s.vespo_k_neg)
        weight = self.by_sign(good, s.vespo_lambda_pos, s.vespo_lambda_neg)
        phi = (weight + k * log_w - weight * log_w.exp()).exp()
        self.metrics["vespo/phi_seq_mean"] = self.mean(phi)
        return phi

    def token_losses(self):
        s, advantage = self.s, self.advantage
        is_ratio = None if self.sampler is None else self.sampler_ratio()
        log_ratio = self.lp - self.old
        w = self.seq_mean(log_ratio) if s.importance_sampling_level == "sequence" else log_ratio
        c1 = w.exp()
        high = s.epsilon_high if s.epsilon_high is not None else s.epsilon
        if s.loss_type == "cispo":
            loss = -c1.detach().clamp(max=high) * advantage * self.lp
            clipped = (c1 > high) & (advantage > 0)
            self.metrics["cispo_clip_ratio"] = self.mean(clipped.to(c1.dtype))
        elif s.loss_type == "sapo":
            t = self.by_sign(advantage > 0, s.sapo_temperature_pos, s.sapo_temperature_neg)
            loss = -torch.sigmoid(t * (c1 - 1)) * 4 / t * advantage
        elif s.loss_type == "vespo":
            loss = -self.phi(log_ratio, is_ratio).detach() * advantage * self.lp
        else:
            bounded = c1 if s.delta is None else c1.clamp(max=s.delta)
            clipped = c1.clamp(1 - s.epsilon, 1 + high)
            loss = -torch.min(bounded * advantage, clipped * advantage)
            self.measure_clipping(((bounded < 1 - s.epsilon) & (advantage < 0)).to(c1.dtype),
                                  ((bounded > 1 + high) & (advantage > 0)).to(c1.dtype))
        if s.off_policy_mask_threshold is not None:
            sampler = self.old if self.sampler is None else self.sampler
            apart = self.seq_mean((sampler - self.lp.detach()).nan_to_num(nan=0.0))
            loss = loss * ((advantage >= 0) | (apart <= s.off_policy_mask_threshold))
        self.learning = self.m
        if s.top_entropy_quantile < 1:
            counted = self.entropy.detach()[self.m > 0]
            lowest = torch.quantile(counted, 1 - s.top_entropy_quantile)
            self.learning = self.m * (self.entropy.detach() >= lowest)
            loss = loss * self.learning
        if is_ratio is not None and s.loss_type != "vespo":
            loss = loss * is_ratio
        if s.beta:
            apart = self.ref - self.lp
            kl = apart.exp() - apart - 1
            if s.use_bias_correction_kl:
                kl = kl * c1
            self.metrics["kl"] = self.mean(kl)
            loss = loss + s.beta * kl
        return loss

    def of_rank(self):
        """The loss, and the policy loss in it."""
        s, m, case = self.s, self.m, self.case
        tokens = self.token_losses() * m
        if s.loss_type in ("grpo", "sapo"):
            loss = (tokens.sum(-1) / self.lengths[:, 0]).mean() / ACCUMULATION
        elif s.loss_type == "bnpo":
            loss = tokens.sum() / m.sum().clamp(min=1) / ACCUMULATION
        elif s.loss_type == "dr_grpo":
            loss = tokens.sum() / (len(LENGTHS) * LONGEST) / ACCUMULATION
        elif s.loss_type == "luspo":
            loss = tokens.sum(-1).mean() / ACCUMULATION
        elif s.loss_normalization == "window":
            loss = tokens.sum() / (case.window_tokens / WORLD)
        else:
            loss = tokens.sum() / (case.generation_tokens / WORLD * ACCUMULATION / PER_GENERATION)
        policy = loss.detach()
        entropy = self.entropy * self.learning
        self.metrics["entropy"] = self.mean(self.entropy)
        if s.top_entropy_quantile < 1:
            self.metrics["entropy/kept"] = (entropy.sum() / self.learning.sum()).item()
        if s.entropy_coef:
            share = self.learning.sum().clamp(min=1) * ACCUMULATION
            if s.loss_normalization == "window":
                share = case.window_tokens * s.top_entropy_quantile / WORLD
            loss = loss - s.entropy_coef * entropy.sum() / share
        return loss, policy

    def answer(self):
        loss, policy = (part / WORLD for part in self.of_rank())
        loss.backward()
        self.metrics["loss"] = loss.item()
        if self.s.entropy_coef:
            self.metrics["policy_loss"] = policy.item()
        out = {"loss": loss.item(), "log_prob_gradient": self.case.ragged(self.lp.grad),
               "metrics": self.metrics}
        if self.s.entropy_coef:
            out["entropy_gradient"] = self.case.ragged(self.entropy.grad)
        return out


def trl_loss(case):
    """Loss and gradient of a rank, computed by TRL's trainer from the same numbers."""
    s, values = case.settings, case.tensors
    lp = values["log_probs"].clone().requires_grad_()
    accelerator = types.SimpleNamespace(
        num_processes=WORLD, sync_gradients=True, gather=lambda x: x,
        reduce=lambda x, reduction: x, pad_across_processes=lambda x, **_: x)
    ours = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (lp, values["entropies"], None),
        accelerator=accelerator, aux_loss_enabled=False, args=types.SimpleNamespace(
            **vars(s), steps_per_generation=PER_GENERATION), beta=s.beta, loss_type=s.loss_type,
        top_entropy_quantile=s.top_entropy_quantile, epsilon_low=s.epsilon,
        epsilon_high=s.epsilon if s.epsilon_high is None else s.epsilon_high,
        off_policy_mask_threshold=s.off_policy_mask_threshold, max_completion_length=LONGEST,
        importance_sampling_level=s.importance_sampling_level, use_vllm=case.sampled,
        vllm_importance_sampling_correction=True, model=types.SimpleNamespace(training=True),
        current_gradient_accumulation_steps=ACCUMULATION, entropy_coef=s.entropy_coef,
        _entropy_bonus_enabled=s.entropy_coef > 0, use_adaptive_entropy=False,
        get_off_policy_mask=GRPOTrainer.get_off_policy_mask,
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        _metrics={"train": collections.defaultdict(list)})
    ours.get_high_entropy_mask = types.MethodType(GRPOTrainer.get_high_entropy_mask, ours)
    prompts = torch.ones(len(LENGTHS), 1)
    inputs = {"prompt_ids": prompts, "prompt_mask": prompts,
              "completion_ids": torch.zeros_like(case.mask), "completion_mask": case.mask,
              "advantages": case.advantages, "ref_per_token_logps": values["ref_log_probs"],
              "num_items_in_batch": torch.tensor(float(case.generation_tokens))}
    if "old_log_probs" in values:
        inputs["old_per_token_logps"] = values["old_log_probs"]
    if case.sampled:
        formula = Formula(case)
        inputs["sampling_per_token_logps"] = values["sampler_log_probs"]
        inputs["importance_sampling_ratio"] = formula.sampler_ratio()
    loss = GRPOTrainer._compute_loss(ours, None, inputs)
    loss.backward()
    metrics = {name: lists[-1] for name, lists in ours._metrics["train"].items()}
    return loss.item(), case.ragged(lp.grad), metrics


def all_cases(dtype):
    """Every type and level with every option."""
    options = [dict(), dict(old=False), dict(masked=(1, 3)), dict(entropy_coef=0.02),
               dict(top_entropy_quantile=0.3, entropy_coef=0.02),
               dict(off_policy_mask_threshold=0.02),
               dict(off_policy_mask_threshold=0.02, sampler=True,
                    vllm_importance_sampling_mode="token_mask"),
               *(dict(sampler=True, vllm_importance_sampling_mode=mode) for mode in MODES),
               dict(sampler=True, vllm_importance_sampling_mode="token_truncate",
                    vllm_importance_sampling_clip_min=0.8, vllm_importance_sampling_clip_max=1.2),
               dict(sampler=True, vllm_importance_sampling_mode="token_mask", masked=(2,),
                    vllm_importance_sampling_clip_min=0.8, vllm_importance_sampling_clip_max=1.2)]
    divergences = [dict(), dict(beta=0.1), dict(beta=0.1, use_bias_correction_kl=False)]
    deltas = [dict(), dict(delta=1.1), dict(delta=1.5, epsilon_high=0.3)]
    ways = itertools.product(TYPES, LEVELS, divergences, deltas, options, ["trl", "window"])
    for seed, (loss_type, level, kl, delta, option, norm) in enumerate(ways):
        if loss_type not in CLIPPED and "delta" in delta and "epsilon_high" not in delta:
            continue  # has no delta
        if loss_type == "vespo" and option.get("vllm_importance_sampling_mode", "")[:3] == "seq":
            continue  # not supported
        keys = {**kl, **delta, **option}
        if loss_type == "cispo":
            keys["epsilon_high"] = 1.2
        yield Case(seed, dtype, loss_type=loss_type, importance_sampling_level=level,
                   loss_normalization=norm, **keys)


def normal_scores(scores, weights, groups):
    """Advantages by the formulas: from summed scores, or from scores that are normalized first."""
    def spread(values):
        known = values[~values.isnan()]
        return known.mean(), known.std() if len(known) > 1 else torch.tensor(math.nan).double()

    def of_groups(column):
        means, deviations = torch.empty_like(column), torch.empty_like(column)
        for group in set(groups.tolist()):
            means[groups == group], deviations[groups == group] = spread(column[groups == group])
        return means, deviations

    silent = scores.isnan().all(1)
    sums = (scores * weights).nansum(1)
    sums[silent] = math.nan
    mean, group_deviation = of_groups(sums)
    zero = {"group": group_deviation, "none": group_deviation,
            "batch": spread(sums)[1].expand_as(sums)}
    results = {"group": (sums - mean) / (group_deviation + 1e-4), "none": sums - mean,
               "batch": (sums - mean) / (zero["batch"] + 1e-4)}
    each = torch.stack([(column - of_groups(column)[0]) / (of_groups(column)[1] + 1e-4)
                        for column in scores.T], 1)
    total = (each * weights).nansum(1)
    total[silent] = math.nan
    mean, deviation = spread(total)
    results["first"] = (total - mean) / (deviation + 1e-4)
    zero["first"] = deviation.expand_as(total)
    metrics = {"reward": spread(sums)[0], "reward_std": spread(sums)[1]}
    for number, column in enumerate(scores.T):
        metrics[f"rewards/f{number}/mean"], metrics[f"rewards/f{number}/std"] = spread(column)
    share = {way: ((column.abs() <= 1e-8).double().mean()) for way, column in zero.items()}
    return {way: (values.nan_to_num(nan=0.0).tolist(), {
        **{name: value.item() for name, value in metrics.items()},
        "frac_reward_zero_std": share[way].item()}) for way, values in results.items()}


@unittest.skipIf(torch is None, "needs torch")
class GrpoLoss(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def ours(self, cases):
        path = pathlib.Path(self.folder.name)
        (path / "in.json").write_text(json.dumps(cases))
        subprocess.run([BIN / "grpo_loss", path / "in.json", path / "out.json"], check=True)
        return json.loads((path / "out.json").read_text())

    def near(self, got, expected, tolerance, what):
        scale = max(abs(x) for x in expected)
        for a, b in zip(got, expected, strict=True):
            self.assertLessEqual(abs(a - b), tolerance * scale, what)

    def compare(self, dtype, tolerance):
        cases = list(all_cases(dtype))
        answers = self.ours([case.to_json() for case in cases])
        moved = 0
        for case, got in zip(cases, answers, strict=True):
            expected, what = Formula(case).answer(), str(case.changed)
            self.near([got["loss"]], [expected["loss"]], tolerance * 10, what)
            for name in ("log_prob_gradient", "entropy_gradient"):
                self.assertEqual(name in got, name in expected, what)
                if name in got:
                    self.near(got[name], expected[name], tolerance, what)
            self.assertEqual(sorted(got["metrics"]), sorted(expected["metrics"]), what)
            for name, value in expected["metrics"].items():
                self.near([got["metrics"][name]], [value], tolerance * 10, f"{name} {what}")
            moved += any(got["log_prob_gradient"])
        self.assertGreater(moved, 0.99 * len(cases))  # a mask may mask everything
        self.assertGreater(len(cases), 1000)

    def test_the_losses_equal_the_formulas_in_fp64(self):
        self.compare(torch.float64, 1e-10)

    def test_the_losses_equal_the_formulas_in_fp32(self):
        self.compare(torch.float32, 1e-5)

    @unittest.skipIf(GRPOTrainer is None, "needs trl")
    def test_the_formulas_equal_trls(self):
        checked = 0
        for case in all_cases(torch.float64):
            if case.settings.loss_normalization != "trl":
                continue
            case.sampled = "sampler_log_probs" in case.tensors
            formula, what = Formula(case), str(case.changed)
            loss, policy = formula.of_rank()
            loss.backward()
            theirs, gradient, metrics = trl_loss(case)
            # TRL has some constants in fp32.
            self.near([loss.item()], [theirs], 1e-5, what)
            self.near(case.ragged(formula.lp.grad), gradient, 1e-5, what)
            rows_count = case.weights.min() == 1  # TRL's means of rows have masked rows too
            for name, value in metrics.items():
                of_rows = "clip" in name or "phi" in name
                if name in formula.metrics and (rows_count or not of_rows):
                    self.near([formula.metrics[name]], [value], 1e-6, f"{name} {what}")
                    checked += 1
        self.assertGreater(checked, 3000)

    def test_advantages_equal_the_formulas(self):
        generator = torch.Generator().manual_seed(3)
        cases, expected = [], []
        for number in range(20):
            sizes = [2 + (number + i) % 5 for i in range(4)]
            groups = torch.tensor([g for g, size in enumerate(sizes) for _ in range(size)])
            scores = torch.randn(len(groups), 3, generator=generator, dtype=torch.float64)
            scores[torch.rand(scores.shape, generator=generator) < 0.3] = math.nan
            scores[groups == 1] = 0.5  # all equal
            scores[groups == 2, 1] = math.nan
            weights = torch.tensor([1.0, 0.5, 2.0]).double()
            by_way = normal_scores(scores, weights, groups)
            rows = [[None if math.isnan(x) else x for x in row] for row in scores.tolist()]
            for way in ("group", "batch", "none", "first"):
                cases.append({"rows": rows, "groups": groups.tolist(), "weights": weights.tolist(),
                              "scale": "group" if way == "first" else way,
                              "aggregation": "normalize_then_sum" if way == "first"
                                             else "sum_then_normalize"})
                expected.append(by_way[way])
        for case, got, (advantages, metrics) in zip(cases, self.ours(cases), expected):
            self.near(got["advantages"], advantages, 1e-10, str(case))
            missing = [all(score is None for score in row) for row in case["rows"]]
            if any(missing):
                metrics["frac_reward_missing"] = sum(missing) / len(missing)
            self.assertEqual(sorted(got["metrics"]), sorted(metrics))
            for name, value in metrics.items():
                self.assertAlmostEqual(got["metrics"][name], value, 10, name)


if __name__ == "__main__":
    unittest.main()
