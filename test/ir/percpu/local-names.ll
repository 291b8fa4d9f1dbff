; A module's own static function of such a name is not ours.
; RUN: %shunt-opt --passes=shunt-percpu --cpu=tp:8 --stats %s 2>&1 | %FileCheck %s
; CHECK: call i32 @shunt_cpu_id()
; CHECK: cpu_ids 0
; CHECK: missed 0
target triple = "x86_64-unknown-linux-gnu"

define internal i32 @shunt_cpu_id() {
  ret i32 7
}

define i32 @caller() {
  %cpu = call i32 @shunt_cpu_id()
  ret i32 %cpu
}
