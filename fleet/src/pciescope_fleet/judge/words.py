"""Judgements in words: what people read. Scripts read JSON."""

import math
from typing import Any

from pciescope_fleet.dataset.rows import name_of
from pciescope_fleet.judge.doubt import doubt
from pciescope_fleet.judge.outliers import USUAL, WORDS, Judged
from pciescope_fleet.text import counted, some

FEW = 8  # So many hosts are named; the rest is counted.
FEWER = 0.95  # A host with a smaller share of the usual number of samples lacks some.
FORMS = ": a second mode, a longer tail or more noise"  # What makes another distribution.


def amount(value: float, unit: str) -> str:
    """A figure in three digits with a unit that suits it."""
    steps = {
        "ns": (("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)),
        "bytes/s": (("bytes/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)),
    }.get(unit, ((unit, 1.0),))
    name, factor = next(((n, f) for n, f in reversed(steps) if abs(value) >= f), steps[0])
    return f"{value / factor:.{max(0, 2 - math.floor(math.log10(abs(value / factor) or 1)))}f} {name}"


def hosts_in_words(hosts: list[str], alike: frozenset[str]) -> str:
    """The hosts' names; of very many only the first."""
    return some([shown(host, alike) for host in hosts])


def renamed_in_words(renamed: list[dict[str, Any]]) -> list[str]:
    """What machines were called before, in a line if there are any."""
    names = [f"{each['host']} (before: {', '.join(each['earlier'])})" for each in renamed]
    return [f"renamed: {some(names)}"] if names else []


def shown(host_key: str, alike: frozenset[str]) -> str:
    """A host's name; with its machine where it is one of those that are called alike."""
    return host_key if host_key in alike else name_of(host_key)


def direction_in_words(direction: str) -> str:
    """A finding's direction as people read it."""
    return {"other form": "another distribution", "narrower form": "a narrower distribution"}.get(direction, direction)


def outlier_in_words(worst: dict[str, Any]) -> str:
    """What is wrong with one figure, in one line."""
    statistic = WORDS[worst["statistic"]]
    if worst["statistic"] == "form":
        # Shares of samples that do not overlap make half that distance.
        share = 1 - (1 - worst["effect"]) ** 2
        return f"{worst['figure']}: as if {share:.0%} of its samples lay where its like have none"
    if worst["statistic"] == "cpu":
        cpus = f"CPU {worst['cpu']}" if "cpu" in worst else f"CPUs {worst['cpus']}"
        return f"{worst['figure']}: {cpus} {worst['effect']:+.1%} beside the same CPUs of the other hosts"
    group, own = amount(worst["group_median"], worst["unit"]), amount(worst["value"], worst["unit"])
    return f"{worst['figure']}: {statistic} {own}, group {group} ({worst['effect']:+.1%})"


def report(judged: Judged) -> str:
    """The answer first, then each finding."""
    found = judged.findings
    hosts = {host for each in found for host in each["hosts"]}
    lines = [
        f"{len(hosts)} of {judged.hosts} hosts differ from similar hosts: {counted(len(found), 'finding')}, "
        f"{counted(len(judged.outliers), 'outlier')} among {counted(judged.tests, 'figure')}",
        f"  at most {judged.plan.level:.0%} of the outliers are expected to be false alarms; "
        f"shifts below {judged.plan.least_effect:.0%} are left out",
    ]
    if judged.unjudged:
        lines.append(
            f"  not judged: {judged.unjudged} figures with fewer than {judged.plan.least_hosts} similar hosts "
            f"({hosts_in_words(judged.unjudged_hosts, judged.alike)})"
        )
    lines += [
        f"  {each['figures']} figures were judged in coarser groups, without {', '.join(each['without'])}"
        for each in judged.coarser
    ]
    for is_replaced, why in ((False, "a newer run of the host lacks it"), (True, "another device is there now")):
        gone = [each for each in judged.gone if each.is_replaced == is_replaced]
        removed = some([f"{each.device} of {shown(each.host_key, judged.alike)}" for each in gone])
        lines += [f"  not judged, {why}: {removed}"] if removed else []
    lines += [f"  {mode_in_words(each, judged.alike)}" for each in judged.modes[:FEW]]
    if len(judged.modes) > FEW:
        lines.append(f"  two modes: {len(judged.modes) - FEW} more; --json has all")
    lines += [f"  {line}" for line in renamed_in_words(judged.renamed)]
    lines += [f"  failed: {failure_in_words(each, judged.alike)}" for each in judged.failed[:FEW]]
    if len(judged.failed) > FEW:
        lines.append(f"  failed: {len(judged.failed) - FEW} more; --json has all")
    for each in found:
        lines.append("")
        lines += finding_in_words(each, judged.alike)
    return "\n".join(lines) + "\n"


def failure_in_words(each: dict[str, Any], alike: frozenset[str]) -> str:
    """An error of a host's newest run."""
    of = f" of {each['device']}" if each["device"] else ""
    others = f"{counted(each['others'], 'other host')} {'has' if each['others'] == 1 else 'have'} it too"
    remarks = [others] if each["others"] else []
    if each["replaced_by"] is not None:
        remarks.append(f"the newest run of {each['host']} is of another machine, {each['replaced_by']}")
    what = ": ".join(filter(None, (each["code"], each["text"])))
    return f"{shown(each['host_key'], alike)}: {each['verb']}{of} on {each['time'][:10]}: {what}" + "".join(
        f"; {one}" for one in remarks
    )


def mode_in_words(each: dict[str, Any], alike: frozenset[str]) -> str:
    """A group whose hosts fall into two."""
    own, others = (amount(each[name], each["unit"]) for name in ("value", "value_of_others"))
    more = len(each["figures"]) - 1
    remarks = [f"; {shared_in_words(each['shared'])}"] if each["shared"] else []
    remarks += [f"; and {counted(more, 'more figure')}"] if more else []
    remarks += [] if each["is_judged"] else ["; a part with too few hosts is not judged"]
    return (
        f"two modes: {each['device_name'] or each['model']} {each['figure']}: {own} on {len(each['hosts'])} hosts, "
        f"{others} on {each['others']} ({each['effect']:+.1%}): "
        f"{hosts_in_words(each['hosts'], alike)}{''.join(remarks)}"
    )


def shared_in_words(share: dict[str, Any]) -> str:
    """What hosts share, and how many others do."""
    return (
        f"they share {share['attribute']} {share['value']}; of the {share['healthy']} others "
        f"{share['healthy_with']} have it (p {share['p']:.1g})"
    )


def finding_in_short(each: dict[str, Any]) -> str:
    """The same in one line, without the hosts' names and direction."""
    share, causes = each["shared"], each["beside"]
    text = "; ".join([outlier_in_words(each["worst"]), *differences(each)])
    if share is not None:
        text += f"; they share {share['attribute']} {share['value']}"
    return text + (f"; {causes[0]['check']}: {causes[0]['text']}" if causes else "")


def differences(each: dict[str, Any]) -> list[str]:
    """What the device of a finding's worst outlier has other than most of its group, where they do not share it."""
    worst, share = each["worst"], each["shared"]
    own, usual = worst["count"], worst["group_count"]
    lacking = [f"{own:,} samples, the hosts of its group {usual:,}"] if own and usual and own < FEWER * usual else []
    return lacking + [
        f"{name} {worst[name]}, most of its group {worst[f'group_{name}']}"
        for name in USUAL
        if worst[name] and worst[f"group_{name}"] not in (None, worst[name])
        if share is None or share["attribute"] != name
    ]


def title_of(hosts: list[str], alike: frozenset[str]) -> str:
    """The hosts' names, and how many they are where there are several."""
    return (f"{len(hosts)} hosts: " if len(hosts) > 1 else "") + hosts_in_words(hosts, alike)


def finding_in_words(each: dict[str, Any], alike: frozenset[str]) -> list[str]:
    """One finding."""
    title = f"{direction_in_words(each['direction'])}: {title_of(each['hosts'], alike)}"
    label = "" if each["origin"] == "measured" else f"  {each['origin'].upper()}: not measured on hardware"
    worst = each["worst"]
    lines = [
        title + label,
        f"  {each['device_name'] or each['model']} at {worst['device']}" if worst["device"] else "",
        f"  {outlier_in_words(worst)}{FORMS if each['direction'] == 'other form' else ''}",
    ]
    lines += [f"  {difference}" for difference in differences(each)]
    share = each["shared"]
    if share is not None:
        lines.append(f"  {shared_in_words(share)}")
    more = len(each["figures"]) - 1
    if more:
        lines.append(f"  and {counted(more, 'more figure')}")
    regard = f", without regard to {', '.join(worst['group_without'])}" if worst["group_without"] else ""
    lines.append(
        f"  compared with {worst['group_hosts']} hosts{regard}: "
        f"{abs(worst['z']):.1f} times their usual spread away (q {worst['q']:.1g})"
    )
    doubts = [words for each_host in each["worst_of_hosts"] if (words := doubt(each_host)) is not None]
    lines += [f"  in doubt: {words}" for words in doubts[:FEW]]
    if len(doubts) > FEW:
        lines.append(f"  in doubt: {len(doubts) - FEW} more hosts, for such reasons")
    lines += [f"  {cause['severity']} {cause['check']}: {cause['text']}" for cause in each["beside"]]
    return [line for line in lines if line]
