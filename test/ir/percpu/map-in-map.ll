; A lookup in what a map of maps gave: inline where the shape of its maps is known, the values' base read from the map that was found.
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:-160 --map template:type=array,key=4,value=8,entries=16 --map outer:type=12,key=4,value=4,entries=4,inner=template --map plain:type=12,key=4,value=4,entries=4 --stats --remarks=%t.yaml %s -o %t.ll 2>&1 | %FileCheck %s --check-prefix=COUNTS
; RUN: %FileCheck %s < %t.ll
; RUN: %FileCheck %s --check-prefix=WHY < %t.yaml
; RUN: not %shunt-opt --map outer:type=12,inner=nothing %s 2>&1 | %FileCheck %s --check-prefix=INNER
; COUNTS: array_lookups 3
; INNER: 'inner' is not a field with a value in range
target triple = "x86_64-unknown-linux-gnu"

@outer = external global i8
@plain = external global i8
declare ptr @shunt_map_lookup(ptr, ptr)

; CHECK-LABEL: define ptr @inner(
; CHECK: %m = call ptr @shunt_map_lookup(ptr @outer, ptr %k)
; CHECK: found:
; CHECK: icmp ult i32 %{{.*}}, 16
; CHECK: [[VALUES:%.*]] = getelementptr inbounds i8, ptr %m, i64 24
; CHECK: load ptr, ptr [[VALUES]]
; CHECK-NOT: call ptr @shunt_map_lookup
; CHECK: ret ptr
define ptr @inner(ptr %k, ptr %l) {
  %m = call ptr @shunt_map_lookup(ptr @outer, ptr %k)
  %hit = icmp ne ptr %m, null
  br i1 %hit, label %found, label %none
found:
  %v = call ptr @shunt_map_lookup(ptr %m, ptr %l)
  ret ptr %v
none:
  ret ptr null
}

; Through memory, and one of two.
; CHECK-LABEL: define ptr @chosen(
; CHECK-COUNT-2: call ptr @shunt_map_lookup(ptr @outer
; CHECK-NOT: call ptr @shunt_map_lookup
; CHECK: ret ptr
define ptr @chosen(ptr %k, ptr %l, i1 %c) {
  %slot = alloca ptr
  %m = call ptr @shunt_map_lookup(ptr @outer, ptr %k)
  %n = call ptr @shunt_map_lookup(ptr @outer, ptr %l)
  store ptr %m, ptr %slot
  %a = load ptr, ptr %slot
  %u = call ptr @shunt_map_lookup(ptr %a, ptr %l)
  %s = select i1 %c, ptr %m, ptr %n
  %v = call ptr @shunt_map_lookup(ptr %s, ptr %u)
  ret ptr %v
}

; WHY: Function: 'unknown'
; WHY: comes out of a map whose inner maps are not described
; CHECK-LABEL: define ptr @unknown(
; CHECK: call ptr @shunt_map_lookup(ptr %m, ptr %k)
define ptr @unknown(ptr %k) {
  %m = call ptr @shunt_map_lookup(ptr @plain, ptr %k)
  %v = call ptr @shunt_map_lookup(ptr %m, ptr %k)
  ret ptr %v
}

; A map that would come out of itself.
; WHY: Function: 'loop'
; CHECK-LABEL: define ptr @loop(
define ptr @loop(ptr %k, i1 %c) {
entry:
  br label %again
again:
  %p = phi ptr [ @outer, %entry ], [ %m, %again ]
  %m = call ptr @shunt_map_lookup(ptr %p, ptr %k)
  br i1 %c, label %again, label %done
done:
  ret ptr %m
}
