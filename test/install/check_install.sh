#!/usr/bin/env bash
# check_install.sh find_package|pkg_config BUILD SOURCE WORK: installs BUILD below WORK, builds the outside project there and runs it.
set -euo pipefail
way=$1 build=$2 source=$3 work=$4

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp -r "$source/consumer" "$work/consumer"
libdir=$(dirname "$(find "$work/prefix" -name 'libshunt.a')")

case $way in
find_package)
	cmake -S "$work/consumer" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix"
	cmake --build "$work/build"
	;;
pkg_config)
	export PKG_CONFIG_PATH=$libdir/pkgconfig
	mkdir -p "$work/build"
	read -ra runtime <<<"$(pkg-config --cflags --libs shunt)"
	read -ra front_end <<<"$(pkg-config --cflags --libs shunt-llvm)"
	cc -o "$work/build/runtime_only" "$work/consumer/runtime_only.c" "${runtime[@]}"
	cc -o "$work/build/runtime_only_static" "$work/consumer/runtime_only.c" -I"$work/prefix/include" "$libdir/libshunt.a" \
		$(pkg-config --static --libs liburcu-bp libxxhash) -pthread
	cc -o "$work/build/front_end" "$work/consumer/front_end.c" "${front_end[@]}"
	;;
esac

for program in runtime_only runtime_only_static front_end; do
	LD_LIBRARY_PATH=$libdir "$work/build/$program"
done

# Each tool has a man page that has each of its options.
check_page() { # PAGE COMMAND...
	local page=$work/prefix/share/man/man1/$1 tool=$work/prefix/bin/$2 option
	shift 2
	for option in $(LD_LIBRARY_PATH=$libdir "$tool" "$@" --help | grep -oE -- '--[a-z0-9][a-z0-9-]+' | sort -u); do
		grep -qE -- "(Fl|,) ${option#-}( |$)" "$page" || {
			echo "$page says nothing of $option"
			exit 1
		}
	done
}
for tool in "$work"/prefix/bin/*; do
	check_page "$(basename "$tool").1" "$(basename "$tool")"
done
check_page shunt.1 shunt run
check_page shunt.1 shunt compile
