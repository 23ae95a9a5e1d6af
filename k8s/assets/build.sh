#!/usr/bin/env bash
# Puts etcd, kube-apiserver, kube-controller-manager and kube-scheduler into
# ${XDG_CACHE_HOME:-~/.cache}/berth/kube/<version>/. The scheduler is for tests, which compare the nodes that it allows
# with those of Berth; a demo runs without it.
#   usage: build.sh [go|debian|manifests|controllers]
# "go" builds the modules that are pinned, with hashes, in modules/. "debian" builds an older Kubernetes from Debian's
# source package. Without an argument it is "go", and "debian" if no recent Go or no module proxy is available.
# "manifests" puts Helm and kustomize, for tests of the manifests, into helm-<version> beside that folder; it needs Go.
# "controllers" puts the controllers of JobSet, Ray and Kubeflow, with their manifests, into folders of their own there.
# Does nothing if the binaries exist and their pins are those of this tree, or if KUBEBUILDER_ASSETS names a folder
# with them, with or without the scheduler.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/berth/kube
programs=(etcd kube-apiserver kube-controller-manager kube-scheduler)
for_manifests=(helm kustomize)
way=${1:-}
began=$SECONDS

say() { echo "kube-assets: $*"; }
fail() { say "$*" >&2; exit 1; }

# The pin of the module $2 in the go.mod of modules/$1.
pinned() { sed -nE "s|^(require )?[[:space:]]*$2 (v[0-9][^ ]*).*|\2|p" "$here/modules/$1/go.mod" | head -n 1; }

# The sources of the binaries; a folder that was built from other sources is built again.
pins() { (cd "$here" && sha256sum "$@") | sha256sum | cut -d ' ' -f 1; }

complete() { # folder, pins, programs
  local program
  for program in "${@:3}"; do [[ -x $1/$program ]] || return 1; done
  [[ $(cat "$1/.pins" 2>/dev/null) == "$2" ]]
}

# Puts the folder "bin" of the scratch space in its place in one step.
install_as() { # version, pins
  local target=$cache/$1
  echo "$2" >"$scratch/bin/.pins"
  if [[ -e $target ]]; then mv "$target" "$scratch/old" || return 1; fi
  mv "$scratch/bin" "$target"
}

tell() { # version
  say "$("$cache/$1/kube-apiserver" --version), $("$cache/$1/etcd" --version | head -n 1), in $cache/$1"
  say "took $((SECONDS - began)) s"
}

prepare_go() {
  export GOTOOLCHAIN=local GOWORK=off GOFLAGS=-mod=readonly CGO_ENABLED=0
  command -v go >/dev/null || { say "there is no go"; return 2; }
}

with_go() {
  local kube etcd wanted minor flags name
  kube=$(pinned kubernetes k8s.io/kubernetes)
  etcd=$(pinned etcd go.etcd.io/etcd/server/v3)
  wanted=$(pins modules/kubernetes/go.{mod,sum} modules/etcd/go.{mod,sum})
  if complete "$cache/$kube" "$wanted" "${programs[@]}"; then
    say "$cache/$kube is up to date"
    return 0
  fi
  prepare_go || return
  # Lists every package, and so fetches every module, without building anything.
  go -C "$here/modules/kubernetes" list -deps tool >/dev/null && go -C "$here/modules/etcd" list -deps tool >/dev/null || {
    say "$(go version) cannot load the modules of Kubernetes $kube and etcd $etcd"
    return 2
  }
  say "building Kubernetes $kube and etcd $etcd with $(go env GOVERSION); this takes some minutes"
  minor=${kube#v1.}
  flags="-s -w"
  for name in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $name.gitVersion=$kube -X $name.gitMajor=1 -X $name.gitMinor=${minor%%.*} -X $name.gitTreeState=archive"
  done
  go -C "$here/modules/etcd" build -trimpath -ldflags "-s -w" -o "$scratch/bin/etcd" tool || return 1
  go -C "$here/modules/kubernetes" build -trimpath -ldflags "$flags" -o "$scratch/bin/" tool || return 1
  install_as "$kube" "$wanted" && tell "$kube"
}

with_debian() {
  local kube wanted
  kube=v1.20.2
  wanted=$(pins build-debian.sh)
  if complete "$cache/$kube" "$wanted" "${programs[@]}"; then
    say "$cache/$kube is up to date"
    return 0
  fi
  "$here/build-debian.sh" "$kube" "$scratch" || return 1
  install_as "$kube" "$wanted" && tell "$kube"
}

# Helm and kustomize; they have a folder of their own, so that another version of them builds nothing else again.
of_manifests() {
  local helm kustomize wanted flags
  helm=$(pinned manifests helm.sh/helm/v4)
  kustomize=$(pinned manifests sigs.k8s.io/kustomize/kustomize/v5)
  wanted=$(pins modules/manifests/go.{mod,sum})
  if complete "$cache/helm-$helm" "$wanted" "${for_manifests[@]}"; then
    say "$cache/helm-$helm is up to date"
    return 0
  fi
  prepare_go || return
  go -C "$here/modules/manifests" list -deps tool >/dev/null || {
    say "$(go version) cannot load the modules of Helm $helm and kustomize $kustomize"
    return 2
  }
  say "building Helm $helm and kustomize $kustomize with $(go env GOVERSION)"
  flags="-s -w -X helm.sh/helm/v4/internal/version.version=$helm -X sigs.k8s.io/kustomize/api/provenance.version=$kustomize"
  go -C "$here/modules/manifests" build -trimpath -ldflags "$flags" -o "$scratch/bin/" tool || return 1
  install_as "helm-$helm" "$wanted" || return 1
  say "Helm $("$cache/helm-$helm/helm" version --short), kustomize $("$cache/helm-$helm/kustomize" version), in $cache/helm-$helm"
}

# A controller and the folders of its module that have definitions, webhooks and samples. Each has a folder of its
# own, so that another version of one builds nothing else again.
controller() { # folder in modules, path of the module, program, folders of manifests
  local version wanted source folder
  version=$(pinned "$1" "$2")
  wanted=$(pins "modules/$1"/go.{mod,sum})
  if complete "$cache/$1-$version" "$wanted" "$3"; then
    say "$cache/$1-$version is up to date"
    return 0
  fi
  prepare_go || return
  say "building $1 $version with $(go env GOVERSION); this takes some minutes"
  go -C "$here/modules/$1" build -trimpath -ldflags "-s -w" -o "$scratch/bin/" tool || return 1
  source=$(go -C "$here/modules/$1" list -m -f '{{.Dir}}' "$2")
  for folder in "${@:4}"; do
    mkdir -p "$scratch/bin/manifests/$folder"
    cp -R --no-preserve=mode "$source/$folder/." "$scratch/bin/manifests/$folder"
  done
  install_as "$1-$version" "$wanted" || return 1
  mkdir "$scratch/bin"
  say "$1 $version is in $cache/$1-$version; took $((SECONDS - began)) s"
}

of_controllers() {
  local jobset=config/components training=manifests/base ray=config
  controller jobset sigs.k8s.io/jobset jobset $jobset/{crd/bases,webhook} &&
    controller kuberay github.com/ray-project/kuberay/ray-operator ray-operator $ray/{crd/bases,webhook,samples} &&
    controller training-operator github.com/kubeflow/training-operator training-operator.v1 \
      $training/{crds,webhook} examples
}

case $way in "" | go | debian | manifests | controllers) ;; *) fail "unknown way $way; known are go, debian, manifests and controllers" ;; esac

if [[ ($way == "" || $way == go || $way == debian) && -n ${KUBEBUILDER_ASSETS:-} ]]; then
  for program in "${programs[@]}"; do
    [[ $program == kube-scheduler || -x $KUBEBUILDER_ASSETS/$program ]] || fail "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, which has no program $program"
  done
  say "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, nothing to build"
  exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/.lock"
flock --nonblock 9 || { say "waiting for another run"; flock 9; }
rm -rf "$cache"/.scratch.* # of a run that was killed; no other runs now
scratch=$(mktemp -d "$cache/.scratch.XXXXXX")
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
mkdir "$scratch/bin"

status=0
case $way in
  manifests) of_manifests || status=$? ;;
  controllers) of_controllers || status=$? ;;
  debian) with_debian || status=$? ;;
  *) with_go || status=$? ;;
esac
if [[ $way == "" && $status == 2 ]]; then
  status=0
  with_debian || status=$?
fi
[[ $way != manifests || $status != 2 ]] || { say "without Helm the tests of the chart are skipped"; exit 0; }
[[ $status == 0 ]] || fail "nothing was built"
