"""Kubernetes manifests in `entry/`: they fit the schemas, name what there is, and their commands train."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from ding_like.entry import cli
from tests.docs.test_commands import CARTPOLE, called, expected_of
from tests.support import wait_until

__all__ = ["called"]  # a fixture

ROOT = Path(__file__).parents[2]
FOLDERS = [ROOT / "entry/kubernetes", ROOT / "entry/kuberay"]
VERSIONS = ("1.31", "1.34", "1.37")
Document = dict[str, Any]

# Fields of KubeRay's `ray.io/v1`, of its reference of version 1.6; no package has the schema.
RAY_JOB = set(
    "activeDeadlineSeconds backoffLimit clusterSelector deletionStrategy entrypoint entrypointNumCpus jobId managedBy "
    "entrypointNumGpus entrypointResources metadata preRunningDeadlineSeconds rayClusterSpec runtimeEnvYAML suspend "
    "shutdownAfterJobFinishes submissionMode submitterConfig submitterPodTemplate ttlSecondsAfterFinished".split()
)
RAY_CLUSTER = set(
    "authOptions autoscalerOptions enableInTreeAutoscaling gcsFaultToleranceOptions headGroupSpec managedBy "
    "headServiceAnnotations rayVersion suspend upgradeStrategy workerGroupSpecs".split()
)
RAY_HEAD = set("enableIngress headService labels rayStartParams resources serviceType template".split())
RAY_WORKERS = set(
    "groupName idleTimeoutSeconds labels maxReplicas minReplicas numOfHosts rayStartParams replicas resources "
    "scaleStrategy suspend template".split()
)


def documents(folder: Path) -> list[Document]:
    files = sorted(path for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")
    return [each for path in files for each in yaml.safe_load_all(path.read_text())]


def kustomization(folder: Path) -> Document:
    found: Document = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return found


ALL = [each for folder in FOLDERS for each in documents(folder)]
JOBS = [each for each in ALL if each["kind"] == "Job"]
(RAY,) = (each for each in ALL if each["kind"] == "RayJob")


def name_of(document: Document) -> str:
    return f"{document['kind']} {document['metadata']['name']}"


def ray_groups() -> list[Document]:
    cluster = RAY["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pods_of(found: list[Document]) -> list[Document]:
    templates = [each["spec"]["template"] for each in found if each["kind"] == "Job"]
    templates += [group["template"] for each in found if each == RAY for group in ray_groups()]
    return [template["spec"] for template in templates]


def ding_commands() -> list[list[str]]:
    entrypoint = re.findall(r"exec (ding [^;]*);", RAY["spec"]["entrypoint"])
    of_jobs = [each["spec"]["template"]["spec"]["containers"][0]["args"] for each in JOBS]
    return [*of_jobs, *(shlex.split(line)[1:] for line in entrypoint)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", [each for each in ALL if each is not RAY], ids=name_of)
def test_a_manifest_fits_the_schema(document: Document, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_schema_finds_a_misspelt_field() -> None:
    wrong = json.loads(json.dumps(JOBS[0]).replace("backoffLimit", "backofLimit"))

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_ray_job_has_fields_of_kuberay_and_pods_that_fit_the_schema() -> None:
    head, *workers = ray_groups()

    assert set(RAY["spec"]) <= RAY_JOB and set(RAY["spec"]["rayClusterSpec"]) <= RAY_CLUSTER
    assert set(head) <= RAY_HEAD and all(set(group) <= RAY_WORKERS for group in workers)
    for group in (head, *workers):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": group["template"]}
        kubernetes_validate.validate(pod, VERSIONS[-1], strict=True)
    assert f"ray=={RAY['spec']['rayClusterSpec']['rayVersion']}" in (ROOT / "constraints.txt").read_text()


def test_pods_are_without_rights_and_ask_for_what_they_need() -> None:
    for pod in pods_of(ALL):
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        for container in (*pod["containers"], *pod.get("initContainers", ())):
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert {mount["name"] for mount in container["volumeMounts"]} <= {each["name"] for each in pod["volumes"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_pods_name_what_the_folder_makes_and_the_key_of_their_role(folder: Path) -> None:
    kinds = {"configMap": ("ConfigMap", "name"), "secret": ("Secret", "secretName")}
    kinds["persistentVolumeClaim"] = ("PersistentVolumeClaim", "claimName")
    found, made = documents(folder), kustomization(folder)
    own = {name_of(each) for each in found if each["kind"] == "PersistentVolumeClaim"}
    own |= {f"ConfigMap {each['name']}" for each in made["configMapGenerator"]}
    own |= {f"Secret {each['name']}" for each in made.get("secretGenerator", ())}

    named = set()
    for pod in pods_of(found):
        for source, (kind, key) in kinds.items():
            named |= {f"{kind} {volume[source][key]}" for volume in pod["volumes"] if source in volume}
        secrets = [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
        assert secrets in ([], [f"ding-key-{pod['containers'][0]['name']}"])

    assert named == own


def test_the_commands_are_taken(called: list[str]) -> None:
    places = {"/config/config.py": str(CARTPOLE), "/keys/key.json": "keys.json", "/data/run": "exp"}

    for arguments in ding_commands():
        called.clear()
        cli.main([places.get(word, word) for word in arguments])
        assert called == [expected_of(arguments)]
    assert len(ding_commands()) == 5


@pytest.fixture
def rendered(tmp_path: Path) -> list[Document]:
    """Return what `kubectl apply -k` would send, of a folder with a config and real keys."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl renders a kustomization, and is not here")
    folder = shutil.copytree(FOLDERS[0], tmp_path / "kubernetes")
    shutil.copy(CARTPOLE, folder / "config.py")
    cli.main(["keys", "--per-role", str(folder / "keys.json")])
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, check=True, timeout=60)
    return list(yaml.safe_load_all(done.stdout))


def test_kubectl_renders_the_folder_with_a_config_and_keys(rendered: list[Document]) -> None:
    for document in rendered:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)

    secrets = {each["metadata"]["name"]: set(each["data"]) for each in rendered if each["kind"] == "Secret"}
    assert secrets == {f"ding-key-{role}": {"key.json"} for role in ("coordinator", "learner", "collector")}
    assert {
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in rendered if each["kind"] == "Job"
    } == {"ding-like:0.1.0"}


class Pod:
    """Containers of a Job's pod as processes of this machine, with its volumes as folders."""

    def __init__(self, spec: Document, folder: Path, *, port: int, more: Sequence[str] = ()) -> None:
        container = spec["containers"][0]
        self.folder = folder / container["name"]
        self.role = container["name"]
        self.container = container
        for name in ("data", "keys", "secret", "config"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(CARTPOLE, self.folder / "config/config.py")
        key = "keys.json" if self.role == "coordinator" else f"keys.{self.role}.json"
        shutil.copy(folder / key, self.folder / "secret/key.json")
        (self.folder / "secret/key.json").chmod(0o440)  # as a pod's fsGroup leaves it
        first, *_ = spec["initContainers"]
        subprocess.run([self.here(word) for word in first["command"]], check=True, timeout=60)
        places = {"7000": str(port), "http://ding-coordinator:7000": f"http://127.0.0.1:{port}"}
        self.arguments = [*(places.get(word, self.here(word)) for word in container["args"]), *more]
        self.start()

    def here(self, word: str) -> str:
        """Return a path of the pod as one of this machine."""
        return re.sub(r"^/(data|keys|secret|config)(?=/|$)", lambda found: str(self.folder / found[1]), word)

    def start(self) -> None:
        self.output = open(self.folder / "output.txt", "a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ding_like", *self.arguments],
            cwd=self.folder / "data",
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=self.output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(30)
        self.output.close()

    @property
    def said(self) -> str:
        return (self.folder / "output.txt").read_text()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def answers(container: Document, port: int) -> bool:
    """Ask as the kubelet does, by the pod's address."""
    probe = container["livenessProbe"]["httpGet"]
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", probe["path"], headers={"Host": f"10.1.2.3:{port}", "User-Agent": "kube-probe/1.34"})
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_pods_commands_train_also_where_the_coordinators_pod_is_killed(tmp_path: Path, stack: ExitStack) -> None:
    cli.main(["keys", "--per-role", str(tmp_path / "keys.json")])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    specs = {each["spec"]["template"]["spec"]["containers"][0]["name"]: each for each in JOBS}
    pods = {}
    for role in ("coordinator", "learner", "collector"):
        more = ("--env-step", "3000", "env.n_evaluator_episode=10") if role == "coordinator" else ()
        pods[role] = Pod(specs[role]["spec"]["template"]["spec"], tmp_path, port=port, more=more)
        stack.callback(pods[role].end)
    first = pods["coordinator"]

    wait_until(lambda: answers(first.container, port), "an answer to the probe", timeout_s=120)
    wait_until(lambda: "env step" in first.said, "training", timeout_s=120)
    os.killpg(first.process.pid, signal.SIGKILL)
    first.process.wait(30)
    first.output.close()
    first.start()  # by restartPolicy

    for role, pod in pods.items():
        assert pod.process.wait(240) == 0, f"{role}: {pod.said[-2000:]}"
    result = json.loads((first.folder / "data/run/result.json").read_text())
    assert result["env_step"] >= 3000 and result["train_iter"] > 0
