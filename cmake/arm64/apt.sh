# For sourcing: which Debian archives this machine's apt uses, for fetching arm64 packages from the same places.

# One "deb URI SUITE COMPONENT" line each. Only what comes from Debian itself: other archives on the machine need not have arm64.
debian_sources() {
	local sources
	sources="$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' 'Created-By: Packages' |
		awk -F'|' '$1 == "Debian" { print "deb " $2 " " $3 " " $4 }' | sort -u)"
	if [[ -z $sources ]]; then
		echo "arm64: apt knows no Debian archive: run apt-get update, or add deb.debian.org to its sources" >&2
		return 1
	fi
	printf '%s\n' "$sources"
}

# What of this machine's apt configuration another apt needs to reach them: proxies, certificates, retries; a line each.
network_options() {
	apt-config dump Acquire | grep -E '^Acquire::(https?|Retries|ForceIPv[46])' || true
}
