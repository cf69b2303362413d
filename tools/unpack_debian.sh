#!/usr/bin/env bash
# Unpacks a package of Debian SUITE into a folder; nothing is installed.
#   tools/unpack_debian.sh trixie kubectl .cache/kubernetes
set -euo pipefail
suite=$1 package=$2 folder=$3
mkdir -p "$folder/apt/lists/partial"
cd "$folder"
site=$(apt-get indextargets --format '$(SITE)' | head -1)
: >apt/status # what is installed here counts for nothing
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site $suite main" >apt/sources
options=(-qq -o "Dir::Etc::SourceList=$PWD/apt/sources" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$PWD/apt/lists"
  -o "Dir::State::Status=$PWD/apt/status" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
(cd apt && apt-get "${options[@]}" download "$package")
dpkg-deb -x apt/"$package"_*.deb .
rm -r apt
