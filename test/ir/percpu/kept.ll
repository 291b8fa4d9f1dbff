; What stays on a lookup that becomes a call of the hash, and lookups in forms that have no inline one.
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:-160 --map lru:type=lru_hash,key=4,value=8,entries=16 --map array:type=array,key=4,value=8,entries=16 --remarks=%t.yaml %s -o %t.ll && %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=WHY < %t.yaml
; RUN: sed -e 's/x86_64/aarch64/' %s | %shunt-opt --passes=shunt-percpu --cpu=tp:-160 --map lru:type=lru_hash,key=4,value=8,entries=16 --map array:type=array,key=4,value=8,entries=16 - | %FileCheck %s
target triple = "x86_64-unknown-linux-gnu"

@lru = external global i8
@array = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)
declare i32 @__gxx_personality_v0(...)

; CHECK-LABEL: define ptr @everything(
; CHECK-NEXT: %v = notail call ptr @shunt_map_find_hash(ptr @lru, ptr %k) #[[SITE:[0-9]+]] [ "deopt"(i32 1) ], !prof ![[PROF:[0-9]+]], !srcloc ![[SRC:[0-9]+]]
define ptr @everything(ptr %k) strictfp {
  %v = notail call ptr @shunt_map_lookup(ptr @lru, ptr %k) strictfp "site"="x" [ "deopt"(i32 1) ], !prof !1, !srcloc !0
  ret ptr %v
}

; Straight-line code has no use for what is said of a call.
; CHECK-LABEL: define ptr @inlined(
; CHECK-NOT: call
; CHECK: ret ptr
define ptr @inlined(ptr %k) strictfp {
  %v = tail call ptr @shunt_map_lookup(ptr @array, ptr %k) strictfp "site"="x" [ "deopt"(i32 1) ], !prof !1
  ret ptr %v
}

; CHECK-LABEL: define void @left(
; CHECK-NEXT: call ptr @shunt_map_lookup(ptr @array)
; CHECK-NEXT: call fastcc ptr @shunt_map_lookup(ptr @array, ptr %k)
; CHECK-NEXT: call ptr @shunt_map_lookup(ptr @array, ptr addrspace(1) %far)
; CHECK-NEXT: invoke ptr @shunt_map_lookup(ptr @array, ptr %k)
; WHY: !Missed
; WHY: !Missed
; WHY: !Missed
; WHY: !Missed
define void @left(ptr %k, ptr addrspace(1) %far) personality ptr @__gxx_personality_v0 {
  call ptr @shunt_map_lookup(ptr @array)
  call fastcc ptr @shunt_map_lookup(ptr @array, ptr %k)
  call ptr @shunt_map_lookup(ptr @array, ptr addrspace(1) %far)
  invoke ptr @shunt_map_lookup(ptr @array, ptr %k) to label %ok unwind label %bad
ok:
  ret void
bad:
  %pad = landingpad { ptr, i32 } cleanup
  ret void
}

; CHECK-DAG: attributes #[[SITE]] = { strictfp "site"="x" }
; CHECK-DAG: ![[PROF]] = !{!"branch_weights", i32 7}
; CHECK-DAG: ![[SRC]] = !{i32 1}
!0 = !{i32 1}
!1 = !{!"branch_weights", i32 7}
