; Parameters of a pass, in angle brackets as LLVM's own have them.
; RUN: %shunt-opt --passes='shunt-percpu<cpu=tp:-96;nr-cpus=4>' %s | %FileCheck %s --check-prefixes=CHECK,TP
; RUN: %shunt-opt --passes='shunt-percpu<cpu=call>,shunt-dispatch' %s | %FileCheck %s --check-prefixes=CALL
; RUN: %shunt-opt --passes='shunt<nr-cpus=4>' %s | %FileCheck %s --check-prefixes=CHECK,RSEQ
; RUN: echo 'counts:type=percpu_array,key=4,value=8,entries=3' > %t.maps
; RUN: %shunt-opt --passes='shunt-percpu<maps=%t.maps;spectre-v1>' %s | %FileCheck %s --check-prefix=MAPS
; RUN: not %shunt-opt --passes='shunt-percpu<cpu=moon>' %s 2>&1 | %FileCheck %s --check-prefix=VALUE
; RUN: not %shunt-opt --passes='shunt-percpu<shiny>' %s 2>&1 | %FileCheck %s --check-prefix=NAME
; RUN: not %shunt-opt --passes='shunt-dispatch<spectre-v1>' %s 2>&1 | %FileCheck %s --check-prefix=OTHER
; RUN: not %shunt-opt --passes='shunt-percpu<cpu=call' %s 2>&1 | %FileCheck %s --check-prefix=OPEN
; RUN: not %shunt-opt --passes='shunt-percpu<maps=%t.nowhere>' %s 2>&1 | %FileCheck %s --check-prefix=NOWHERE
; VALUE: pass 'shunt-percpu': bad value of parameter 'cpu': write cpu=rseq
; NAME: pass 'shunt-percpu' has no parameter 'shiny'
; OTHER: pass 'shunt-dispatch' has no parameter 'spectre-v1'
; OPEN: have no closing '>'
; NOWHERE: bad value of parameter 'maps'
target triple = "x86_64-unknown-linux-gnu"

@counts = external global i8
declare ptr @shunt_percpu_of(ptr, i32)
declare i32 @shunt_cpu_id()
declare ptr @shunt_map_lookup(ptr, ptr)

; CHECK: icmp ult i32 %n, 4
; TP: load i32, ptr addrspace(257) inttoptr (i64 -96 to ptr addrspace(257))
; RSEQ: load i64, ptr @__rseq_offset
; CALL: call i32 @shunt_cpu_id()
; MAPS: icmp ult i32 %key, 3
; MAPS: and i32 %key, 3
define void @f(ptr %p, i32 %n, ptr %k) {
  call ptr @shunt_percpu_of(ptr %p, i32 %n)
  call i32 @shunt_cpu_id()
  call ptr @shunt_map_lookup(ptr @counts, ptr %k)
  ret void
}
