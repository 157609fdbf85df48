"""Versioned schemas of every file that one part of the package writes for another, or for people.

| record      | schema                    | file              | unknown fields                          |
|-------------|---------------------------|-------------------|-----------------------------------------|
| Inventory   | gossamer.inventory/1      | one object        | refused                                 |
| Benchmark   | gossamer.benchmark/1      | one object        | refused                                 |
| RequestLog  | gossamer.request_log/1    | one line each     | refused: nothing unlisted is ever logged |
| Capture     | gossamer.capture/1        | one line each     | refused, but kept inside messages and tools |
| Assignment  | gossamer.assignment/1     | one line each     | refused                                 |
| EvalResult  | gossamer.eval_result/1    | one object        | refused                                 |
| Plan        | gossamer.plan/1           | one object        | refused                                 |
| Prediction  | gossamer.prediction/1     | one object        | refused                                 |

A field that changes meaning, goes away or becomes required gives the next version number; a new
optional field does too, because older readers refuse it.

Import a record from its own module (`gossamer.records.benchmark.Benchmark`), the functions from
`gossamer.records.envelope`, and all kinds by name from `gossamer.records.registry`; this file imports
nothing, because commands that must start at once need only one of them.
"""
