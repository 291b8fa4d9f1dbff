; Front ends that pass map handles: a known one becomes the map, an unknown one stays with the host's own helper.
; RUN: %shunt-opt --passes=shunt-bpf-helpers --map counts:type=array,key=4,value=8,entries=4,handle=3 --map :type=array,key=4,value=8,entries=4,handle=4,address=0x5000000 --map :type=array,key=4,value=8,entries=4,handle=5,values=0x9000000 --remarks=%t.yaml %s -o %t.ll
; RUN: %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=MISSED < %t.yaml
; RUN: %shunt-opt --passes=shunt-bpf-helpers --map counts:type=array,key=4,value=8,entries=4,handle=3 %t.ll -o %t.again.ll
; RUN: grep -v ModuleID %t.ll > %t.1 && grep -v ModuleID %t.again.ll > %t.2 && cmp %t.1 %t.2
target triple = "x86_64-unknown-linux-gnu"

declare i64 @_bpf_helper_ext_0001(i64, i64, i64, i64, i64)

; CHECK: @counts = external global i8
; CHECK-LABEL: define void @known(
; CHECK: call ptr @shunt_map_lookup(ptr @counts, ptr
; CHECK: call ptr @shunt_map_lookup(ptr inttoptr (i64 83886080 to ptr), ptr
define void @known(i64 %key) {
  call i64 @_bpf_helper_ext_0001(i64 3, i64 %key, i64 undef, i64 undef, i64 undef)
  %slot = alloca i64
  store i64 4, ptr %slot
  %map = load i64, ptr %slot
  call i64 inttoptr (i64 1 to ptr)(i64 %map, i64 %key)
  ret void
}

; CHECK-LABEL: define void @unknown(
; CHECK: call i64 @_bpf_helper_ext_0001(i64 5, i64 %key, i64 undef
; CHECK: call i64 @_bpf_helper_ext_0001(i64 99, i64 %key, i64 0
; CHECK: call i64 @_bpf_helper_ext_0001(i64 %map, i64 %key, i64 0
; MISSED: Name: UnknownHandle
; MISSED: Function: 'unknown'
; MISSED: a handle of a map whose address is not known
; MISSED: Name: UnknownHandle
; MISSED: neither the address nor the handle
; MISSED: Name: UnknownHandle
define void @unknown(i64 %key, i64 %map) {
  call i64 @_bpf_helper_ext_0001(i64 5, i64 %key, i64 undef, i64 undef, i64 undef)
  call i64 inttoptr (i64 1 to ptr)(i64 99, i64 %key)
  call i64 inttoptr (i64 1 to ptr)(i64 %map, i64 %key)
  ret void
}

; The inner map that a lookup gave is an address.
; CHECK-LABEL: define void @inner(
; CHECK: [[INNER:%.*]] = call ptr @shunt_map_lookup(ptr @counts
; CHECK: call ptr @shunt_map_lookup(ptr [[INNER]]
define void @inner(ptr %key) {
  %map = call ptr inttoptr (i64 1 to ptr)(i64 3, ptr %key)
  call ptr inttoptr (i64 1 to ptr)(ptr %map, ptr %key)
  ret void
}
; MISSED-NOT: Missed
