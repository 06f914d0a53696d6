//! Crash texts of the JVM and of Go.

use crash::parse_crash_text;

/// Beginning of an error file of OpenJDK 17, shortened.
pub(crate) const JVM: &str = "#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f2a5c0d1139, pid=4711, tid=4712
#
# JRE version: OpenJDK Runtime Environment (17.0.15+6)
# Problematic frame:
# C  [libshop.so+0x1139]  Java_Shop_pay+0x9
#
Command Line: -Dtoken=hunter2 Shop

Current thread (0x00007f2a58024560):  JavaThread \"main\" [_thread_in_native, id=4712]

Native frames: (J=compiled Java code, j=interpreted, Vv=VM code, C=native code)
C  [libshop.so+0x1139]  Java_Shop_pay+0x9
j  Shop.pay()V+0
J 91 c2 Shop.main([Ljava/lang/String;)V (12 bytes) @ 0x00007f2a4c0f1a34 [0x00007f2a4c0f1a00+0x34]
v  ~StubRoutines::call_stub
V  [libjvm.so+0x7d5c5b]  JavaCalls::call_helper(JavaValue*, methodHandle const&)+0x2fb

Java frames: (J=compiled Java code, j=interpreted, Vv=VM code)
j  Shop.pay()V+0
";

/// What a program in Go prints when it dereferences nil.
pub(crate) const GO: &str = "starting
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x48e1b3]

goroutine 1 [running]:
main.(*Shop).Pay(...)
\t/src/shop/main.go:10
main.serve({0xc000012345, 0x3}, 0x1)
\t/src/shop/main.go:15 +0x1d
main.main()
\t/src/shop/main.go:20 +0x1d
exit status 2
";

/// Expected reason, thread and functions.
#[track_caller]
fn check(text: &str, reason: &str, thread: &str, functions: &[&str]) {
    let notice = parse_crash_text(text.as_bytes()).expect("a crash text");
    assert_eq!((notice.reason.as_str(), notice.origin.thread.as_str()), (reason, thread));
    let found: Vec<&str> = notice.frames.iter().map(|frame| frame.function.as_str()).collect();
    assert_eq!(found, functions);
    assert!(!notice.to_json().to_string().contains("hunter2"));
}

#[test]
fn error_file_of_the_jvm() {
    let frames = ["Java_Shop_pay", "Shop.pay", "Shop.main", "JavaCalls::call_helper"];
    check(JVM, "SIGSEGV", "main", &frames);
    let internal =
        JVM.replace("SIGSEGV (0xb) at pc=0x00007f2a5c0d1139", "Internal Error (a.cpp:1)");
    check(&internal, "JVM error", "main", &frames);
    let short = JVM.split("#\nCommand").next().unwrap();
    check(short, "SIGSEGV", "", &["Java_Shop_pay"]);
    let notice = parse_crash_text(JVM.as_bytes()).unwrap();
    assert_eq!((notice.origin.pid, notice.frames[0].address), (4711, 0x1139));
}

#[test]
fn panics_of_go() {
    let functions = ["main.(*Shop).Pay", "main.serve", "main.main"];
    check(GO, "SIGSEGV", "goroutine 1", &functions);
    let own =
        "panic: card hunter2 is invalid\n\ngoroutine 7 [running]:\nmain.pay(0x1)\n\t/a.go:3\n";
    check(own, "panic", "goroutine 7", &["main.pay"]);
    // Found by the fuzzer.
    let nameless = "panic: x\n[signal : \n\ngoroutine 1 [running]:\nmain.main()\n";
    check(nameless, "panic", "goroutine 1", &["main.main"]);
    let index = "panic: runtime error: index out of range [17] with length 3\n\n\
                 goroutine 1 [running]:\nmain.main()\n\t/a.go:3\ncreated by main.f in goroutine 2\n";
    check(index, "panic: index out of range [0] with length 0", "goroutine 1", &["main.main"]);
    let deadlock = "fatal error: all goroutines are asleep - deadlock!\n\n\
                    goroutine 1 [chan receive]:\nmain.main()\n\t/a.go:3\n";
    let reason = "fatal error: all goroutines are asleep - deadlock!";
    check(deadlock, reason, "goroutine 1", &["main.main"]);
}

#[test]
fn other_texts_are_none() {
    for text in ["", "panic: no goroutine follows", "Traceback (most recent call last):\n"] {
        assert!(parse_crash_text(text.as_bytes()).is_none());
    }
}
