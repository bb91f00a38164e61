r"""Two steps with the gradients that a public script on arXiv 2410.07746 takes in p: as printed, and each fault of it alone.

After one step from zero nothing differs: p_1 = 0 with each of them. So v_2 is the same for all, and the second step is one line:
$p_2 = \frac{\beta}{4n} \sum_i g_i y_i (\dots)$, see `WAYS`. Source: derived here; `page 09_a_public_script` says what the script prints.

The script adds a number to every entry of p: it moves along the all-ones vector **1**, whose effect depends on the coordinates. Its
signals have random directions, so that **1** is a vector of norm $\sqrt d$ in a direction independent of the data, and in that form it is
drawn here (`start_vectors=1`), in the coordinates of page I.3.
"""

import math

import torch

from attnbook.single_head.study import TwoStepStudy

WAYS = {
    "right": "the gradient",
    "sign": "the sign alone",
    "diagonal": "the mean score not subtracted, alone",
    "printed": "as printed",
}


def second_step(sample, step_size, ones):
    r"""v_2 (R, m), and p_2 (R, m) for each of `WAYS`. `ones` (R, m) is the vector along which the script moves p.

    With values $w_{it} = v_1 \cdot x_{it}$ of the two tokens, $\bar w_i$ their mean, and $g_i = 1/(1 + e^{y_i \bar w_i})$:

    right: $\frac{\beta}{2n} \sum_i g_i y_i \sum_t (w_{it} - \bar w_i) x_{it}$; sign: minus that;
    diagonal: $\frac{\beta}{4n} \sum_i g_i y_i \sum_t w_{it} x_{it}$; printed: $-\frac{\beta}{4n} \sum_i g_i y_i \sum_t w_{it}\, \mathbf 1$.
    """
    tokens, y = sample.tokens, sample.labels
    n = tokens.shape[1]
    v1 = step_size / (4 * n) * torch.einsum("rn,rntm->rm", y, tokens)
    values = torch.einsum("rntm,rm->rnt", tokens, v1)
    centred = values - values.mean(-1, keepdim=True)
    slopes = torch.sigmoid(-y * values.mean(-1))
    asked = step_size / (4 * n) * slopes * y
    v2 = v1 + torch.einsum("rn,rntm->rm", 2 * asked, tokens)
    right = torch.einsum("rnt,rntm->rm", 2 * asked.unsqueeze(-1) * centred, tokens)
    diagonal = torch.einsum("rnt,rntm->rm", asked.unsqueeze(-1) * values, tokens)
    printed = -(asked * values.sum(-1)).sum(1, keepdim=True) * ones
    return v2, {"right": right, "sign": -right, "diagonal": diagonal, "printed": printed}


def script_study(law, step_size, *, draws, seed):
    """Draw training sets and take the second step in each of `WAYS`: by way, `attention` and `margins` after it, (R, n) each."""
    sample = law.draw(seed, draws, start_vectors=1)
    direction = sample.start_directions[:, 0]
    ones = math.sqrt(law.d) * direction / direction.norm(dim=-1, keepdim=True)
    v2, ways = second_step(sample, step_size, ones)
    scores = torch.einsum("rntm,rm->rnt", sample.tokens, v2)
    clean_counts, noisy_counts = sample.counts()
    s = TwoStepStudy(law=law, step_size=step_size, clean_counts=clean_counts, noisy_counts=noisy_counts)
    s.noisy, s.signal_class, s.attention, s.margins = sample.noisy, sample.signal_class, {}, {}
    for name, p2 in ways.items():
        weights = torch.softmax(torch.einsum("rntm,rm->rnt", sample.tokens, p2), dim=-1)
        s.attention[name] = sample.at_signal(weights)
        s.margins[name] = sample.labels * (weights * scores).sum(-1)
    return s
