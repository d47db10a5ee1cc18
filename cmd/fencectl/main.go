// Command fencectl looks after Fencekit in a database and in etcd: see package internal/fencectl. The modules of other
// lock services have one of their own, which reaches theirs too.
package main

import "github.com/fencekit/fencekit/internal/fencectl"

func main() { fencectl.Main() }
