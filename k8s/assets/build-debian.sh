#!/usr/bin/env bash
# Builds Kubernetes 1.20 from Debian's source package, with Debian's Go and etcd; build.sh calls it.
#   usage: build-debian.sh VERSION SCRATCH
# VERSION is the version that the binaries report. They are written to SCRATCH/bin; the caller removes SCRATCH.
# For Debian 12. Nothing is installed and root is not needed: apt keeps its lists in SCRATCH too, checks signatures, and
# packages are unpacked there. DEBIAN_MIRROR names another mirror than that of the apt sources of this machine.
set -euo pipefail
version=${1:?usage: build-debian.sh VERSION SCRATCH}
scratch=$(cd "${2:?usage: build-debian.sh VERSION SCRATCH}" && pwd)
suite=bookworm
began=$SECONDS

say() { printf 'kube-assets: [%3d s] %s\n' $((SECONDS - began)) "$*"; }
fail() { echo "kube-assets: $*" >&2; exit 1; }

command -v apt-get >/dev/null || fail "there is no apt-get; this way needs Debian 12"

# 1. An apt of our own, with nothing but this suite.
# shellcheck disable=SC2016  # apt fills in what looks like a variable
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
  sed -n "s/^$suite //p" | head -n 1)}
[[ $mirror ]] || fail "the apt sources do not name $suite; set DEBIAN_MIRROR"
mkdir -p "$scratch"/{apt/lists/partial,apt/cache/archives/partial,packages,root,bin}
cat >"$scratch/apt/debian.sources" <<END
Types: deb deb-src
URIs: $mirror
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
apt=(apt-get -qq -o "Dir::Etc::sourcelist=$scratch/apt/debian.sources" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$scratch/apt/lists" -o "Dir::Cache=$scratch/apt/cache" -o "APT::Sandbox::User=$(id -un)")
"${apt[@]}" update
cd "$scratch/packages"
"${apt[@]}" download golang-1.19-go golang-1.19-src etcd-server golang-github-modern-go-reflect2-dev
"${apt[@]}" source --download-only kubernetes
for package in *.deb; do dpkg-deb -x "$package" "$scratch/root"; done
cp "$scratch/root/usr/bin/etcd" "$scratch/bin/"
say "packages are here"

# 2. The source. Debian's patches concern kubectl only and are left out.
export GOROOT=$scratch/root/usr/lib/go-1.19 GOPATH=$scratch/gopath GO111MODULE=off GOFLAGS='' GOTOOLCHAIN=local CGO_ENABLED=0
export GOCACHE=$scratch/gocache # no other build uses it
export PATH=$GOROOT/bin:$PATH
source=$GOPATH/src/k8s.io/kubernetes
mkdir -p "$source"
tar -xzf kubernetes_*.orig.tar.gz -C "$source" --strip-components=1
cd "$source"
# The reflect2 of this release does not know the maps of Go 1.18 and later: the server would be ready, serve what is built
# in, and crash when the first custom resource is written. Debian's own package of reflect2 has the remedy.
reflect2=github.com/modern-go/reflect2
rm -rf "vendor/$reflect2"
cp -r "$scratch/root/usr/share/gocode/src/$reflect2" "vendor/$reflect2"

# 3. The one generated file that a release lacks: the OpenAPI definitions of all packages that ask for them.
go build -o "$scratch/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
mapfile -t marked < <(find -L vendor/k8s.io -name '*.go' -not -name '_*' -exec grep -l '^// *+k8s:openapi-gen=' {} + |
  grep -Ev '^vendor/k8s.io/(code-generator|sample-apiserver)/' | xargs -n 1 dirname | LC_ALL=C sort -u)
[[ ${#marked[@]} -gt 0 ]] || fail "no package of the source asks for OpenAPI definitions"
packages=$(IFS=,; echo "${marked[*]/#/k8s.io/kubernetes/},k8s.io/kubernetes/pkg/apis/abac/v1beta1")
"$scratch/openapi-gen" --logtostderr --input-dirs "$packages" --output-package k8s.io/kubernetes/pkg/generated/openapi \
  --output-file-base zz_generated.openapi --go-header-file vendor/k8s.io/code-generator/hack/boilerplate.go.txt \
  --report-filename "$scratch/violations" >"$scratch/openapi.log" 2>&1 || { tail -n 20 "$scratch/openapi.log" >&2; exit 1; }
say "OpenAPI definitions of ${#marked[@]} packages generated"

# 4. The programs.
minor=${version#v1.}
flags="-s -w"
for name in k8s.io/kubernetes/vendor/k8s.io/component-base/version k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version; do
  flags+=" -X $name.gitVersion=$version -X $name.gitMajor=1 -X $name.gitMinor=${minor%%.*} -X $name.gitTreeState=archive"
done
for program in kube-apiserver kube-controller-manager kube-scheduler; do
  go build -trimpath -ldflags "$flags" -o "$scratch/bin/$program" "./cmd/$program"
  say "$program built"
done
