"""Build each overlay of deploy/kubernetes with `kubectl kustomize` and check it.

The checks are the schemas of the Kubernetes API, references between documents, and confinement of containers.

Needs kubectl, and the packages `kubernetes-validate` and PyYAML.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.34")  # the oldest supported version, and a current one
Document = dict[str, Any]


def built(overlay: str) -> list[Document]:
    """Return the documents of an overlay, built with the example secrets."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(FOLDER, Path(folder) / "kubernetes"))
        shutil.copy(copy / "base" / "secrets.env.example", copy / "base" / "secrets.env")
        command = ["kubectl", "kustomize", str(copy / "overlays" / overlay)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return list(yaml.safe_load_all(text))


def refusal(document: Document, version: str) -> str:
    """Return why the API's schema refuses a document, or an empty string."""
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{document['kind']} {document['metadata']['name']}: {error}"
    return ""


def pods(documents: list[Document]) -> Iterator[tuple[str, Document]]:
    """Yield the name and the pod template of each workload."""
    for document in documents:
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]


def faults(documents: list[Document]) -> Iterator[str]:
    """Yield errors that no schema detects: references to missing objects, and unconfined containers."""
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    labels = [template["metadata"]["labels"].items() for _, template in pods(documents)]
    for document in documents:
        spec = document.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector", {}))
        wanted = selector.get("matchLabels", selector).items()
        if wanted and not any(wanted <= have for have in labels):
            yield f"{document['kind']} {document['metadata']['name']} selects nothing"
    for workload, template in pods(documents):
        spec = template["spec"]
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            for source in container.get("envFrom", []):
                ((kind, reference),) = source.items()
                if (kind.removesuffix("Ref").lower(), reference["name"]) not in {
                    (kind.lower(), name) for kind, name in names
                }:
                    yield f"{workload}: there is no {kind} {reference['name']}"
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            (owner,) = (
                document for document in documents if document.get("spec", {}).get("template") is template
            )
            claimed = [document["metadata"] for document in owner["spec"].get("volumeClaimTemplates", [])]
            if not mounted <= {volume["name"] for volume in [*spec.get("volumes", []), *claimed]}:
                yield f"{workload}: {container['name']} mounts what there is not"
            if container["image"].startswith("eigencal-service") and not _confined(spec, container):
                yield f"{workload}: {container['name']} is not confined"


def _confined(spec: Document, container: Document) -> bool:
    pod, own = spec["securityContext"], container["securityContext"]
    return (
        pod["runAsNonRoot"]
        and pod["runAsUser"] == 10001
        and pod["seccompProfile"] == {"type": "RuntimeDefault"}
        and own["readOnlyRootFilesystem"]
        and not own["allowPrivilegeEscalation"]
        and own["capabilities"] == {"drop": ["ALL"]}
        and "limits" in container["resources"]
        and spec["automountServiceAccountToken"] is False
    )


def main() -> None:
    """Check each overlay, and that the checker refuses an unknown key."""
    for folder in sorted((FOLDER / "overlays").iterdir()):
        documents = built(folder.name)
        for version in VERSIONS:
            wrong = [why for document in documents if (why := refusal(document, version))]
            if wrong:
                sys.exit(f"{folder.name}, Kubernetes {version}: {'; '.join(wrong)}")
            if not refusal(documents[-1] | {"specs": {}}, version):
                sys.exit("the checker lets an unknown key through")
        if wrong := list(faults(documents)):
            sys.exit(f"{folder.name}: {'; '.join(wrong)}")
        shown = ", ".join(f"{document['kind']} {document['metadata']['name']}" for document in documents)
        print(f"{folder.name}: {shown}")


if __name__ == "__main__":
    main()
