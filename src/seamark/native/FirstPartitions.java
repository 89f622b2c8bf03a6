package seamark.state;

import java.io.Serializable;

import scala.runtime.AbstractFunction1;

/** Whether a partition is one of the first so many. Compiled by Janino: no type parameters. */
public class FirstPartitions extends AbstractFunction1 implements Serializable {
  private final int count;

  public FirstPartitions(Integer count) {
    this.count = count.intValue();
  }

  public Object apply(Object partition) {
    return Boolean.valueOf(((Integer) partition).intValue() < count);
  }
}
