"""All that is known at one time: profiles, costs of spreading, and the limit fitted to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from slurm_tiresias.profiler.fit import fitted_pack_limit
from slurm_tiresias.profiler.placing import Placing, by_experience, by_skew
from slurm_tiresias.profiler.profile import Key, Profile, built_in
from slurm_tiresias.profiler.speeds import RunTraffic, Spreading, pairs_of, what_spreading_costs


@dataclass(frozen=True, slots=True)
class KnownProfiles:
    """Profiles (with the built-in ones), the measured costs, and the limit fitted to them."""

    profiles: Mapping[Key, Profile]
    costs: Mapping[Key, Spreading]
    pack_limit: float

    def placing(self, profile: Profile, program: Key) -> Placing:
        """Return the placement of jobs of this profile; ``program`` is the key of their runs."""
        if program in self.costs:
            return by_experience(profile, self.costs[program])
        return by_skew(profile, self.pack_limit)


def known_profiles(
    stored: Iterable[Profile], runs: Iterable[RunTraffic], prior: float
) -> KnownProfiles:
    """Combine stored profiles and runs. The pack limit is fitted if enough
    programs ran in both placements."""
    costs = what_spreading_costs(runs)
    pack_limit = fitted_pack_limit(pairs_of(costs), prior)
    profiles = {**built_in(), **{profile.key: profile for profile in stored}}
    return KnownProfiles(profiles, costs, pack_limit)
