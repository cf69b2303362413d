"""Reduce the CycloneDX list of an environment to the service's dependencies: python -m tools.sbom LIST.

Writes dist/eigencal_service-VERSION.cdx.json: the service with the image's extras, and their dependencies.
"""

import json
import sys
from importlib.metadata import distribution, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SERVICE, EXTRAS = "eigencal-service", frozenset({"demo", "otel"})
DIST = Path(__file__).parents[1] / "dist"


def shipped() -> set[str]:
    """Return the canonical names of the service and of all its direct and indirect dependencies."""
    names: set[str] = set()
    to_see = [(SERVICE, EXTRAS)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while to_see:
        name, extras = to_see.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        names.add(canonicalize_name(name))
        for line in distribution(name).requires or ():
            needed = Requirement(line)
            environments = [{"extra": extra} for extra in ("", *extras)]
            if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                to_see.append((needed.name, frozenset(needed.extras)))
    return names


def main() -> None:
    """Write the list."""
    document = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    names = shipped()
    kept = [item for item in document["components"] if canonicalize_name(item["name"]) in names]
    (service,) = (item for item in kept if item["name"] == SERVICE)
    references = {item["bom-ref"] for item in kept}
    document["metadata"]["component"] = service
    document["components"] = [item for item in kept if item is not service]
    document["dependencies"] = [
        {"ref": item["ref"], "dependsOn": [ref for ref in item.get("dependsOn", ()) if ref in references]}
        for item in document["dependencies"]
        if item["ref"] in references
    ]
    file = DIST / f"eigencal_service-{version(SERVICE)}.cdx.json"
    file.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    print(f"{file.name}: {len(kept)} packages")


if __name__ == "__main__":
    main()
