// Package deploy tests the files of the directory deploy, and the commands of docs/operate.md.
package deploy
