// Command fencectl-chaos runs Fencekit under real faults, with controls that must fail,
// on servers that it starts itself. It is a program of its own because it contains test code.
//
//	fencectl-chaos list        list scenarios and groups
//	fencectl-chaos run         run scenarios, and judge them
package main

import "github.com/fencekit/fencekit/chaos/command"

func main() { command.Main() }
