# For sourcing: collects the shared libraries that arm64 programs need.

declare -A libraries_seen=()

# copy_libraries SYSROOT TO PROGRAM: copies the libraries that PROGRAM needs, and what those need, into TO. They come from the sysroot, and
# those that the build made from where the program says (its rpath).
copy_libraries() {
	local sysroot=$1 to=$2 program=$3
	local dynamic name found dir rpath
	dynamic="$(readelf -d "$program" 2>/dev/null)" || return 0
	rpath="$(sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]/\2/p' <<<"$dynamic" | tr ':' ' ')"
	while IFS= read -r name; do
		[[ -n $name && -z ${libraries_seen[$name]:-} ]] || continue
		libraries_seen[$name]=1
		found=
		for dir in ${rpath:+$(printf "$sysroot%s " $rpath)} "$sysroot"/usr/lib/aarch64-linux-gnu "$sysroot"/lib/aarch64-linux-gnu "$sysroot"/usr/lib/llvm-19/lib "$sysroot"/lib $rpath; do
			[[ -e $dir/$name ]] && found=$dir/$name && break
		done
		if [[ -z $found ]]; then
			echo "arm64: $program needs $name, which is neither in the sysroot nor in its rpath" >&2
			return 1
		fi
		cp -L "$found" "$to/$name"
		copy_libraries "$sysroot" "$to" "$found" || return 1
	done < <(sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p' <<<"$dynamic")
}
