#!/usr/bin/env bash
# The main job: the real XDP programs of Debian's xdp-filter over a real capture, first as two queues behind one dispatcher, then each
# program over every frame against the kernel. usage: demo.sh path/to/shunt
set -euo pipefail
shunt=$1
capture=$(dirname "${BASH_SOURCE[0]}")/data/mixed.pcap
objects=/usr/lib/$(gcc -print-multiarch)/bpf

# What xdp-filter's own command line would set: 1 source, 2 destination, 4 TCP, 8 UDP.
ports=(--set 'filter_ports[port:53]=0xf' --set 'filter_ports[port:8080]=0x6' --set 'filter_ports[port:5201]=0x9')
addresses=(--set 'filter_ipv4[10.1.0.2]=1' --set 'filter_ipv6[fd00:1::2]=3')
macs=(--set 'filter_ethernet[ea:45:63:8c:4b:6d]=1')

show() {
	printf '\n$ shunt'
	printf ' %q' "$@"
	printf '\n'
	"$shunt" "$@"
}

echo "== two receive queues, each with its own program, called through one dispatcher"
show run --queue "$objects/xdpfilt_dny_all.o" --queue "$objects/xdpfilt_alw_tcp.o" "${ports[@]}" "${addresses[@]}" "${macs[@]}" \
	--repeat 1000 "$capture"

echo
echo "== the dispatcher's stub and tree, as they run"
"$shunt" run --queue "$objects/xdpfilt_dny_all.o" --queue "$objects/xdpfilt_alw_tcp.o" --dump tree "$capture" | sed -n '/^stub/,/^mixed/p' |
	sed '$d'

echo "== every program over every frame, beside the kernel"
printf '%-20s %7s %7s   %-42s %9s %9s %6s\n' program pass drop 'against the kernel' 'shunt ns' 'kernel ns' ratio
status=0
for object in "$objects"/xdpfilt_*.o; do
	case $object in
	*_all.o) rules=("${ports[@]}" "${addresses[@]}" "${macs[@]}") ;;
	*_eth.o) rules=("${macs[@]}") ;;
	*_ip.o) rules=("${addresses[@]}") ;;
	*) rules=("${ports[@]}") ;;
	esac
	code=0
	report=$("$shunt" run --check-kernel --time-kernel --json "${rules[@]}" "$object" "$capture") || code=$?
	if ((code == 77)); then
		echo "skipped: this kernel does not let us load BPF programs (run as root)"
		break
	fi
	((code == 0)) || status=1
	python3 -c '
import json, sys
report = json.load(sys.stdin)
queue, kernel = report["queues"][0], report["kernel"]
differences = sum(kernel[kind + "_differences"] for kind in ("verdict", "frame", "map"))
ours, theirs = kernel["shunt_ns_per_frame"], kernel["kernel_ns_per_frame"]
compared = "%d frames, %d map values, %d differences" % (kernel["frames"], kernel["map_values"], differences)
print("%-20s %7d %7d   %-42s %9.1f %9.1f %6.2f" % (queue["program"], queue["verdicts"]["pass"], queue["verdicts"]["drop"], compared, ours, theirs, ours / theirs))
' <<<"$report"
done
exit "$status"
