"""Manifests as text, built from the parts that a test cares about."""


def volcano(tasks: str, *, spec: str = "", metadata: str = "name: job") -> str:
    return (
        f"apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata:\n  {metadata}\nspec:\n{spec}  tasks:\n{tasks}\n"
    )


def pod(resources: str = "limits: {huawei.com/Ascend910: 8}", *, spec: str = "", metadata: str = "") -> str:
    head = f"metadata: {{{metadata}}}, " if metadata else ""
    return f"{{{head}spec: {{{spec}{', ' if spec else ''}containers: [{{name: c, resources: {{{resources}}}}}]}}}}"


def batch(spec: str, *, annotations: str = "", template: str | None = None) -> str:
    return (
        "apiVersion: batch/v1\nkind: Job\n"
        f"metadata: {{name: job, annotations: {{{annotations}}}}}\nspec: {{{spec}, template: {template or pod()}}}\n"
    )


def ascend(specs: str, *, policy: str = "{}") -> str:
    return (
        "apiVersion: mindxdl.gitee.com/v1\nkind: AscendJob\nmetadata: {name: job}\n"
        f"spec: {{runPolicy: {{schedulingPolicy: {policy}}}, replicaSpecs: {specs}}}\n"
    )


def berth(spec: str, *, metadata: str = "{name: job}") -> str:
    return f"apiVersion: berth/v1\nkind: Job\nmetadata: {metadata}\nspec: {spec}\n"
