"""Check docker-compose.yml with default values against the Compose specification, for each set of profiles.

The override docker/demo.yml is checked with the profile `external`.

Needs the package `compose-spec`, which refuses unknown keys and malformed values.
"""

import re
import sys
from pathlib import Path
from typing import Any

import compose_spec
import yaml

ROOT = Path(__file__).parents[1]
FILE, DEMO = ROOT / "docker-compose.yml", ROOT / "docker" / "demo.yml"
PROFILES = (
    ("gpu",),
    ("cpu",),
    ("external",),
    ("gpu", "postgres"),
    ("external", "router"),
    ("external", "observe"),
)
GATEWAY = "host-gateway"  # a valid address in Compose, but unknown to the package
VARIABLE = re.compile(r"\$\{\w+:?-([^${}]*)\}")


def read(path: Path) -> dict[str, Any]:
    """Return a file with the default values of its variables."""
    composition: dict[str, Any] = yaml.safe_load(VARIABLE.sub(r"\1", path.read_text()))
    return composition


def merged(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Return a composition with an override file applied, as far as its members are mappings or texts."""
    return base | {
        name: merged(base[name], value) if isinstance(value, dict) and name in base else value
        for name, value in override.items()
    }


def select(composition: dict[str, Any], profiles: tuple[str, ...]) -> dict[str, Any]:
    """Return the composition with only the services of these profiles."""
    services = {
        name: service
        for name, service in composition["services"].items()
        if set(service["profiles"]) & {*profiles}
    }
    for service in services.values():
        needed = service.get("depends_on", {})
        lost = [name for name, how in needed.items() if name not in services and how.get("required", True)]
        if lost:
            raise ValueError(f"with {profiles} these are needed but not started: {lost}")
        if needed:
            service["depends_on"] = {name: how for name, how in needed.items() if name in services}
    return composition | {"services": services}


def refusal(text: str) -> str:
    """Return why the specification refuses a composition, or an empty string."""
    try:
        compose_spec.PyCompose.from_yaml(text)
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    """Check each set of profiles, and that the checker refuses an unknown key."""
    files = [
        *((profiles, read(FILE)) for profiles in PROFILES),
        (("external",), merged(read(FILE), read(DEMO))),
    ]
    for profiles, whole in files:
        composition = select(whole, profiles)
        text = yaml.safe_dump(composition).replace(GATEWAY, "127.0.0.1")
        if reason := refusal(text):
            sys.exit(f"{'+'.join(profiles)}: {reason}")
        if not refusal(text.replace("restart:", "restarts:")):
            sys.exit("the checker lets an unknown key through")
        print(f"{'+'.join(profiles)}: {', '.join(composition['services'])}")


if __name__ == "__main__":
    main()
