"""A minute of a joint's friction as CSV, as in `mechid study joint-friction`; `--live` sends it as it comes."""

import sys
import time

from mechid.studies.joint_friction_streams import TABLE, friction_stream

SECONDS, NOISE = 60.0, 0.05
"""s; N·m"""


def main() -> None:
    made = friction_stream(TABLE, SECONDS, NOISE, (16.0, 32.0), 1.0, 0)
    begun = time.monotonic()
    print("t,angle,speed,torque")
    for t, sample in zip(made.time.tolist(), made.samples.tolist(), strict=True):
        if "--live" in sys.argv and t > time.monotonic() - begun:
            sys.stdout.flush()
            time.sleep(0.01)
        print(f"{t:.3f},{sample[0]:.9g},{sample[1]:.9g},{sample[2]:.9g}")


if __name__ == "__main__":
    main()
